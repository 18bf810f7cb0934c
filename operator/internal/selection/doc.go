// Package selection keeps the ConfigMap nstpl-selectors, by which the admission policies know which namespaces wait for
// templates and initializers, and which templates require permission.
//
// The operator writes the rules of a template into the ConfigMap before the template is stored: Admission adds them
// when it allows the request, waits until the policies of the API server use them, and only then answers. So the
// policies know each stored template, also while no operator runs. Such an addition is pending until the leader has
// seen the template in its cache as the request stores it, or as a later request does. A request that fails after
// admission leaves an addition behind, which expires.
//
// A template has rules for each of its revisions that namespaces may have (package revisions). Those of an earlier
// revision are needed until the status of the template no longer names the revision.
//
// The leader, with Controller, removes the rules that no template, initializer or pending addition needs, and copies
// the lists in nstpl-auto-opt-out, so that the policies need one ConfigMap only. All replicas write with the
// resourceVersion they read, so none undoes what another has written.
package selection
