// Package policyspace implements PolicySpaces: the hierarchy in which they place namespaces, and their quotas.
//
// # Hierarchy
//
// A policy space has a parent or is a root. A namespace is in the policy space that its label
// policy.nstpl.dev/policyspace names, and below all ancestors of that policy space. Spaces.Place computes a depth
// label for each of them, <name>.tree.policy.nstpl.dev/depth: 1 for the nearest. Package population writes these
// labels, and templates select namespaces by them. Until they are written, the namespace is still in its old place;
// this package counts its usage in both.
//
// Admission denies a label or a parent that names no policy space, and the deletion of a policy space while namespaces
// are in or below it. Both rules catch mistakes of persons, and are not enforced while no replica answers. What makes
// that safe is that a namespace whose policy space does not exist is held while it is new, and keeps what it has
// otherwise. Programs depend on that, because they apply the objects of a tree in an order of their own.
//
// # Counting
//
// The quota of a policy space limits the sum of the usage of all namespaces in and below it. The operator does not
// count objects. In each namespace below a quota it keeps a ResourceQuota named nstpl-policyspace, the usage quota of
// the namespace, with limits that no namespace reaches. Because of them, Kubernetes counts:
//
//   - The API server charges a request to status.used of the usage quota before it stores the object. Its update fails
//     if the resourceVersion has changed since it read the usage quota; then it reads and adds again.
//   - The controller manager counts the existing objects when the limits change or objects are deleted, and corrects
//     status.used.
//
// QuotaAdmission validates the updates of the API server. It ignores those of the controller manager, which only
// report objects that exist already.
//
// # Usage, limit, reservation
//
// A policy space has three numbers per resource:
//
//   - The limit is spec.quota.hard. It is enforced once status.hard contains it, which is when the resource is counted
//     in all namespaces.
//   - The usage of a namespace is status.used of its usage quota.
//   - A reservation, one of status.reservations, is the usage of a namespace after an update that QuotaAdmission has
//     allowed. It names the resourceVersion from which the update goes on.
//
// status.used of the policy space is the sum over its namespaces of the usage, or of the reservation if that is
// higher. An update is allowed if no sum exceeds its limit with it. The update can only succeed as long as the usage
// quota has the resourceVersion of the reservation. Once the cache contains a later one, the update has either been
// written, and is part of the usage, or will never be. Both end the reservation. If neither happens, the operator ends
// the reservation itself: it renews the usage quota, which means that it changes an annotation and thereby the
// resourceVersion. It does so after 0.3 seconds if another request needs the room, and after 5 seconds otherwise.
//
// # Namespaces
//
// The number of namespaces (count/namespaces, and namespacesPerCreator) is counted without ResourceQuotas. A namespace
// counts in the policy space that its label names, and in all ancestors. It also counts in those of its depth labels as
// long as it has not left them (hierarchy.CountedIn). NamespaceQuota validates the requests that put a namespace into
// policy spaces: creations, and changes of the label. It counts the namespaces that exist, adds the reservations
// (status.namespaceReservations), and writes another reservation into each policy space that the namespace enters,
// before the API server stores the namespace. Three rules make that exact:
//
//   - The write names the resourceVersion of the PolicySpace from which the reservations were read, as for usage.
//   - A reservation ends when a replica has seen its namespace, in a state after the one that the reservation goes on
//     from. Then the namespace is counted by itself. status.namespacesAsOf is the newest resourceVersion at which
//     that happened, and a replica decides only once it has seen everything up to there. The census, a store of a
//     reflector of its own, knows up to where that is.
//   - A reservation whose namespace is never stored ends after 40 seconds: the API server gives up each request after
//     34 seconds. Nothing can end it earlier, since the creation of an object goes on from no resourceVersion that
//     the operator could change. A request that needs the room is asked to try again; it is denied only if namespaces
//     that exist use up the limit.
//
// The webhooks are configured, and namespaces are watched, only while some policy space has such a limit. The webhook
// for policy spaces with a limit, and for those below them, fails closed. Another one, for all other policy spaces,
// fails open: it sends namespaces of a policy space that was created below a limit a moment ago.
//
// # Invariants
//
//   - Admission lets no sum exceed its limit. A reservation is stored before the update is allowed, and the API server
//     writes no more than what is reserved.
//   - All replicas agree. Every write of a status names the resourceVersion of the PolicySpace that it was computed
//     from. If another replica wrote meanwhile, the write fails, and the request is checked again with the new status.
//     What a replica keeps in memory saves reads and waits, and decides nothing: a request is denied only after a read
//     from the API server, and allowed only by a conditional write.
//   - A limit on a resource that was not limited before is enforced by a replica whose cache does not have it yet, too:
//     the usage quota already has the resource, so the replica reads the policy spaces from the API server.
//   - Unknown usage is never treated as no usage. While a usage quota is missing or changed by a user, status.uncounted
//     names the namespace, and requests for limited resources are denied. A new leader writes no status before its
//     cache contains all usage quotas that existed when it began to lead.
//   - What nothing enforces is never reported as enforced. The condition Ready does not become True for a generation
//     before the stored webhook configuration has what its limits and rules for self-service need, and the API server
//     uses that configuration. When the webhooks are removed, Ready becomes False with the reason NotReached.
//   - A late write of an earlier leader does no harm. Statuses are written conditionally, limits are patched only if
//     they are those that were read, and deletions name a UID.
//
// # Races that remain
//
//   - A limit that is set below the usage is exceeded until enough objects are deleted. Nothing is evicted, as with a
//     ResourceQuota. The condition Exceeded is True meanwhile.
//   - Usage is reserved in the nearest policy space first. If an ancestor then denies the request, the first
//     reservation remains until it is ended. For that time the room is smaller than necessary, never larger.
//   - The API server adds up requests that arrive at the same time, and QuotaAdmission can only allow or deny the sum.
//     Sequencer releases the requests of a namespace one by one where room is short. If the API server is slower than
//     Sequencer waits, requests arrive together all the same; then clients are asked to try again.
//   - The API server updates the ResourceQuotas of a namespace one after the other, and does not undo the earlier
//     updates if this package denies the last one. Denials makes Kubernetes count the others again.
//   - An API server that sees the usage quota of a new namespace 0.3 seconds later than the operator stores objects
//     without charging for them. The next count finds them. Where there is room for all requests that an API server
//     handles at once, they do not wait for these 0.3 seconds.
//   - The first count in a namespace may miss an object that is created at the same time. Requests wait until a
//     namespace is counted, except for resources of which Kubernetes or templates create objects in every namespace;
//     these are counted a second time when the namespace has been quiet for a second.
//   - A policy space that moves below another one takes its namespaces along, whatever the limits on their number are.
//     Until the cache of a replica has the new parent, the replica counts them in the old place only.
//   - Between the write of the first limit on namespaces and the new webhook configuration, namespaces are created
//     without a check. They count afterwards. The condition Ready is True once a probe has found the webhooks in force.
//   - Until the cache of a replica has a limit on a resource that another policy space above the namespace limited
//     before, the replica reserves only in that one.
//   - The namespaces of a renamed policy space move one by one. The old and the new policy space count the usage in
//     both until the old one is empty, or 30 seconds after a move. mayReplace tells a rename from another move. If it
//     takes a move for a rename, requests are deferred for that time; if it takes a rename with other limits for a
//     move, the old limits and the new ones hold at the same time.
package policyspace
