// Package repository has the cluster follow trees of policies, in Git or in artifacts of Flux, which PolicyRepositories
// name.
//
// # How it works
//
// For each PolicyRepository, a follower asks the source which commit to follow, fetches that commit, and checks the
// tree with the rules of package hierarchy. It does so beside the controller, so that a slow server delays nothing
// else. A commit with a violation is never applied: the commit before it stays in force. Artifacts of Flux are followed
// in the same way, and the follower watches their object.
//
// Repositories is the controller. It compares what the last valid commit declares with the objects in the cluster, by
// package inventory, and applies what differs. Any change of an object of the tree, by whomever, makes it compare
// again.
//
// # Which objects may be deleted
//
// A record in the namespace of the operator holds the UIDs of the objects that were created for the tree. Labels would
// not do, because users may set them. Before objects are created, their names are recorded; after that, their UIDs. So
// if the process ends in between, its successor knows which objects it has created. A request that was not answered may
// be executed late. The name stays recorded until that cannot happen any more.
//
// Only the leader writes, and only while no other replica can be the leader: see package leadership. The caches of the
// objects of trees begin with the leadership, so that they have everything that the former leader has created. The
// cache of PolicyRepositories is older, and only says when to reconcile: each pass lists them from the API server.
//
// If another tree declares an object now that was created for this one, and has its label, the record of that tree gets
// the UID before this one loses it.
//
// The record belongs to one PolicyRepository. When that is deleted, so is the record, and all objects stay.
//
// # Reading guide
//
//   - repositories.go is the controller; follower.go asks a source, as often as pace.go says; source.go reads sources;
//     vetted.go is the tree of a commit.
//   - apply.go carries out a plan; live.go reads what exists; writer.go writes; record.go holds the record.
//   - scopes.go says which changes in the cluster concern which tree; handover.go hands objects to another tree.
//   - status.go and metrics.go report.
package repository
