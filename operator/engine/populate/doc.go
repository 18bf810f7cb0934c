// Package populate creates, updates and prunes the objects that templates declare for a namespace. The operator and the
// kubectl plugin share it, so that a preview shows what the operator does.
//
// A pass over a namespace has four steps:
//
//   - Declare renders the templates that match the namespace. If several templates declare an object, the last one
//     wins.
//   - NewPlan compares the declared objects with the metadata of the existing ones. It returns one Change for each
//     object, with an action and a reason. Declare and NewPlan are functions of values: they make no requests.
//   - Applier.Apply writes the changes with server-side apply (KEP-555), and returns an Outcome for each write. The
//     plugin writes only by Applier.Restore, which applies single objects with the same checks and conditions.
//   - Findings returns what a user should know after the pass: failures, drift, conflicts and omissions. Conditions,
//     Events, metrics and the output of the plugin are views of the findings.
//
// # Invariants
//
// A pass may stop after any write, any answer may be lost, a cache may be stale, and another replica may be at work.
// The next pass completes the work, because the following statements are always true:
//
//   - Only objects that nstpl created are pruned (see Ours), and only the object with the observed UID. An object that
//     existed before is adopted, and not pruned. Three rules delete other objects, too: a template that is
//     authoritative for a kind deletes undeclared objects of that kind, an object of another client that is in the way
//     of a declared one of such a kind, or of a populated grant or restriction, is replaced, and an adopted RoleBinding
//     is recreated if its roleRef must change.
//   - No label by which a template selects namespaces is set, so templates cannot select in circles.
//   - Every fact is stored by one write. The write that applies the fields also records their hash and whether the
//     object was adopted, so there is no moment at which an adopted object looks like one that nstpl created.
//   - Missing knowledge deletes nothing. If a kind cannot be listed, its declared objects have the action Unknown, and
//     no object of the kind is pruned. A template that cannot be rendered, whose creator-dependent objects are unknown,
//     or that does not exist anymore, causes no pruning.
//   - A copy is applied only with the content of its source. If that is not known, the object that exists remains. Only
//     a source that does not exist any more, or a right to read it that is gone for good, lets a copy follow the
//     deletionPolicy. A copy is never written over a source of its template.
//   - Pruning of a kind waits until no apply of that kind fails in the namespace, because the object that failed may be
//     the replacement. The exception are Roles and RoleBindings if a user of the namespace can cause the failure.
//   - A namespace that has an earlier revision of a template has no grant that the newest revision takes away, and none
//     that only the newest one gives (see Declared.revoke).
//   - A RoleBinding never binds a changed Role. It loses the subjects that the plan takes away, then Roles are applied,
//     and it is applied only while its Role is as declared, and deleted if its Role cannot be corrected. A template
//     takes over no Role that an undeclared RoleBinding binds.
//
// # Records
//
// The operator has no database. It compares metadata only, and keeps its records in these places:
//
//   - The label TemplateNameLabel on an object names the template that declares it.
//   - HashAnnotation on an object holds the hash of the applied declaration. Another hash means that the declaration
//     changed since.
//   - The managedFields entry of the field manager nstpl lists the applied fields. A declared field that is missing in
//     the entry was changed by another client, which is drift.
//   - UnownedAnnotation on an object lists the declared fields for which the API server never records an owner. These
//     are not drift.
//   - AdoptedAnnotation on an object says that the object existed before, so that nstpl does not prune it.
//   - ExistingAnnotation on a namespace lists the objects that it had from templates. An object that another client
//     creates in place of one is not adopted, nor a Role or RoleBinding in place of one of a template that does not
//     select the namespace any more. It also lists the objects of templates with driftPolicy Report, and which
//     declaration of each was applied. If one of them is missing, another client deleted it. An object is removed from
//     the list before nstpl deletes it.
//   - NamespaceMetadataAnnotation on a namespace lists the labels and annotations that templates set on the namespace
//     itself: for each the template, a digest of the value, and whether it existed before. Only a value that is
//     recorded, has this digest and did not exist before is removed. If another client has changed it, only its record
//     is removed, so that a late write of a former leader is refused. managedFields do not matter for these, because
//     users who may change a namespace can write them, and can apply a value that they want to keep. It also has a
//     digest of the labels of policy spaces to which an open namespace was moved last: see WithDepths.
//   - The status of a template lists the kinds that it applied. Objects of other kinds are not pruned because of it,
//     except Roles and RoleBindings.
//
// # Remaining races
//
//   - A client that writes an object all the time causes conflicts. After a conflict, the write is repeated without a
//     resourceVersion if the client changed nothing that affects the decision. A new leader may apply another
//     declaration between the check and that write. The UID still protects other objects, and the new leader observes
//     the other hash and applies its declaration again.
//   - So does a user who changes an open namespace all the time. After a conflict, its labels and annotations are
//     compared again, and written if the records of the namespace have not changed, nor its Populated condition if a
//     value is new. Reports on an open namespace are written if neither has changed. If such a write of a former leader
//     arrives late, and the new leader has neither recorded nor reported anything, or the same again, a new label of a
//     template that is gone may remain.
//   - API servers receive Roles and RoleBindings from separate watches. A RoleBinding waits roleDelay after a change of
//     its Role, but an API server whose watch lags for longer evaluates the RoleBinding with the former rules for a
//     moment. A Role does not wait after its RoleBindings lost subjects: users who add subjects all the time would
//     delay what the change takes from its rules. An API server that receives the Role first gives these subjects the
//     new rules for a moment. Kubernetes has the same delay for every change of a Role.
//   - A user may change a Role after the plan was made and before its RoleBinding is applied. Kubernetes lets users
//     write only rules that they have themselves, and the next pass corrects the Role.
//   - If the process ends after it created an object and before it stored ExistingAnnotation, or after it removed an
//     object from the list and before the deletion, and another client then deletes the object, nstpl creates the
//     object again instead of reporting the deletion. The namespace is as declared.
//   - If the second write that corrects UnownedAnnotation is lost, the fields that it would have added look like drift
//     until the object is applied again. Most objects need no second write.
//   - The API server may judge a write into a new namespace by the labels that the namespace had a moment ago, and look
//     up only after that whether the namespace is held. The labels are written before all objects, and the namespace is
//     opened after them, so that the API server would have to miss both writes in one request.
//   - If the process ends after an apply that admission altered, and before it reported that on the namespace, the
//     finding is missing until the object is applied again. A lost answer or a lost report alone does not lose it.
//   - A client that writes managedFields under the name of nstpl can hide drift. The operator notices such a write
//     while it watches (see Observed.Tampered), but not one that was made while no operator ran.
package populate
