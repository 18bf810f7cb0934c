// Package webhook answers the AdmissionReviews that the API server sends to the operator.
//
// The package itself decides nothing. Each feature exports rows of the Chain, each a Plugin: which requests the API
// server sends, which Mutator or Validator decides about them, and what happens to a request when the plugin cannot
// decide. The order of the chain is in operator/chain.go. A feature uses a webhook only for what CEL cannot decide
// inside the API server: a look-up, an allocation or a wait. The other policies are in manifests/admission.
//
// A request enters at one of two endpoints:
//
//   - /mutate calls the mutators in the order of the chain. Each gets the object as the one before it left it. The
//     changes of a mutator that fails are dropped. One that denies the request is the last.
//   - /validate calls every validator whose rules match, unless one that decides first does not allow the request. The
//     client receives the messages of all validators that deny the request. A denial takes precedence over a failure,
//     and a failure over a deferral. A deferral is HTTP status 429 with a Retry-After header.
//
// Configurations writes the webhook configurations from the chain. Every replica answers; only the leader writes.
// A plugin is therefore also called for requests that the API server sends because of the webhook of another plugin.
// Selectors and match conditions only save calls, and a plugin must decide correctly without them. Where a plugin needs
// to know which version of its webhook the API server used, Request.Revision contains it. RevisionCache provides what
// such a plugin decides by.
//
// Two races remain:
//
//   - Between a change of what a plugin enforces and the API server's use of the new configuration, requests pass that
//     the new configuration would send. Features whose users must know when that time has passed report it in a
//     condition: see the Enforced condition in package attribute.
//   - A replica that shuts down may cut the connection of a request. Serve closes connections early so that the API
//     server opens the next one to another replica. A request that fails nevertheless is decided by the webhook's
//     failure policy, and clients repeat it.
package webhook
