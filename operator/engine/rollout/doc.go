// Package rollout decides which revision of a template each namespace has while a change of the template is rolled out,
// and when the rollout goes on, waits, stops or is complete.
//
// # How it works
//
// A template has one or more revisions at a time: Layers, the newest first. A namespace has the first revision that has
// reached it (Layers.For). The last of them is usually complete, so it has reached every namespace. When the newest
// revision is complete, it is the only one.
//
// A revision reaches the namespaces of one wave after the other. Within a wave, each namespace has a position, which is
// computed from its UID and the name of the revision, and the revision has reached the namespaces whose position is
// less than Reach. So the status of a template says which revision every namespace has, although it does not name them:
// its size does not depend on their number, and no namespace is written for it. Advance moves Reach to the next batch
// of namespaces when those of the batch before are populated.
//
// # Namespaces that change meanwhile
//
//   - A namespace that was created after the rollout began has the newest revision, unless the rollout has stopped
//     before: then it has the newest one that is complete. While no revision is complete, every namespace that was
//     created after the template has the newest one, because a namespace must not open without it.
//   - A namespace whose labels change belongs to another wave, and has the revision of that wave.
//   - A deleted namespace no longer counts.
//
// # Revisions that supersede each other
//
// If a template is changed again during a rollout, the rollout of the newer revision begins, and namespaces that have
// the superseded revision keep it until the newer one reaches them. If the newer one equals the last complete revision,
// then it is complete at once: to take a change back needs no waves.
package rollout
