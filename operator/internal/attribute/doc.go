// Package attribute enforces ClusterProtectedAttributes and ProtectedAttributes: rules that name a label or an
// annotation and the role whose holders may set, change and remove it. The decision about one change is a function of
// values, attributes.Rules.Judge. This package supplies the values, and makes the API server send the requests.
//
// # What enters where
//
//   - Admission.Validate decides about every write that changes a protected attribute. Match conditions, generated from
//     the rules, keep all other requests inside the API server. Without rules there is no webhook.
//   - RuleAdmission.Validate decides who may write a rule. A namespace's rule can permit what a cluster's rule forbids,
//     so that its author needs the right to create ClusterProtectedAttributes.
//   - Enforcement reports in the condition Enforced of each rule whether the API server enforces it.
//
// # What a change of rules costs
//
// After every write of a webhook configuration, the API server compiles the match conditions of all its webhooks again,
// and all writes in the cluster wait. So these webhooks have a ValidatingWebhookConfiguration of their own. Its
// expressions have few calls of generic functions, for which CEL's type checker takes quadratic time, and contain names
// in long strings: see package attributes. webhook.Configurations writes the first change at once, and gathers those
// that follow. The configuration is replaced in one write, so that every other rule is in it before and after.
//
// RuleAdmission finds the rules about an attribute by an index. Enforcement writes each status once per generation, and
// reports on the rules from which the stored webhooks were generated, even if other rules have changed meanwhile.
//
// Package vetting asks Admission about the attributes that NamespaceTemplates set. The operator is exempt when it
// populates namespaces, as Kubernetes' controllers are when they copy pod templates: the author of the template was
// checked instead.
//
// # Invariants
//
//   - A user sets, changes or removes a protected attribute only with a role that a rule names. The exceptions are the
//     users in Exempt, mirror pods, and the requests for which webhook.IsNeededToRecover returns true.
//   - A decision never uses rules that are older than those from which the API server's webhook was generated. The
//     webhook's URL contains their revision. If the cache of a replica has not reached it, RuleCache.At reads the rules
//     from the API server.
//   - A rule is Enforced only after the API server has sent a request of the operator because of it. Enforcement tries
//     to set a marker annotation that Validate denies to every user. It uses a dry run, so that nothing is stored.
//   - If the operator does not answer, the API server denies these requests: the failure policy is Fail, since other
//     policies select objects by these attributes.
//
// # Races that remain
//
//   - A new rule is not enforced until the API server uses the new webhook configuration, which takes well under a
//     second. The condition Enforced tells users when it is. Each API server of a control plane reads the configuration
//     by its own watch, and the condition reports on one of them.
//   - The index of bindings follows a watch. A role that was just granted or withdrawn counts a moment later, as in the
//     authorizer of Kubernetes.
package attribute
