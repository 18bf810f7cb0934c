package v1alpha1

// Labels and annotations.
const (
	// TemplateNameLabel on a populated object names the NamespaceTemplate that declares it.
	TemplateNameLabel = "policy/namespace-template-name"

	// TemplateApplyAnnotation on a NamespaceTemplate switches it off if its value is TemplateApplyDisable. The only
	// other value is TemplateApplyEnable.
	TemplateApplyAnnotation = "policy/namespace-template-apply"
	TemplateApplyDisable    = "disable"
	TemplateApplyEnable     = "enable"

	// RequirePermissionAnnotation set to "true" on a NamespaceTemplate makes it select only namespaces of users who
	// have the verb use on it. The only other value is "false". Other values, which templates may have that were stored
	// before admission denied them, count as "true".
	RequirePermissionAnnotation = "policy/namespace-template-require-permission"

	// OptOutAnnotation set to "true" on a Namespace keeps it from being populated. A list of names of
	// NamespaceTemplates, separated by commas, keeps these templates from populating it. Existing objects stay.
	OptOutAnnotation = "policy/namespace-template-opt-out"

	// CreatorAnnotation on a Namespace holds the name of the user who created it. It is an annotation because user
	// names can contain characters that label values cannot. Admission sets it, and undoes changes except those of
	// users with the verb VerbSetCreator.
	CreatorAnnotation = "authorization.k8s.io/creator"

	// InitializingLabel set to "true" marks a Namespace that is being initialized. Webhooks select it, so that writes
	// into other namespaces are never held.
	InitializingLabel = "policy/namespace-initializing"

	// PendingAnnotation on an initializing Namespace lists the initializers that have not finished, separated by
	// commas.
	PendingAnnotation = "policy/namespace-initializers-pending"

	// ReplaceAnnotation set to "true" on an object of a template allows the operator to delete and recreate the
	// object if a change cannot be made in place. RBAC bindings are replaced without it.
	ReplaceAnnotation = "policy/replace"

	// DeletionProtectionAnnotation set to "true" on a Namespace or on a populated object protects it from deletion by
	// every client, also by nstpl, until a user with the verb unprotect removes the annotation. The only other value is
	// "false". The operator takes it off a populated object that a template prunes and did not declare with it.
	DeletionProtectionAnnotation = "policy.nstpl.dev/deletion-protection"

	// HashAnnotation on a populated object holds the hash of the declaration that was applied. The operator compares it
	// and managedFields to find differences without reading whole objects.
	HashAnnotation = "policy.nstpl.dev/applied-hash"

	// AdoptedAnnotation set to "true" marks a populated object that existed before. The operator never prunes it.
	AdoptedAnnotation = "policy.nstpl.dev/adopted"

	// UnownedAnnotation on a populated object lists the declared fields for which the API server records no owner, such
	// as an empty list whose items are merged. A missing owner of these fields is not drift.
	UnownedAnnotation = "policy.nstpl.dev/unowned-fields"

	// ExistingAnnotation on a Namespace lists the objects that it had from templates. What another client creates in
	// place of one is not adopted. It also lists those of templates with driftPolicy Report, so that the operator knows
	// that an object was deleted if it is missing later.
	ExistingAnnotation = "policy.nstpl.dev/reported-objects"

	// NamespaceMetadataAnnotation on a Namespace records the labels and annotations that templates set on it: for each,
	// the template, a digest of the value, and whether it existed before. What is not recorded is never removed.
	// It also records with which depth labels the Namespace was moved.
	NamespaceMetadataAnnotation = "policy.nstpl.dev/namespace-metadata"

	// CopyOfAnnotation on an object names the source that a template copies, as NAMESPACE/NAME. The source is of the
	// same kind.
	CopyOfAnnotation = "policy.nstpl.dev/copy-of"

	// PolicySpaceLabel on a Namespace names the PolicySpace that it is in. Setting it needs the verb use on that space.
	PolicySpaceLabel = "policy.nstpl.dev/policyspace"

	// ExpiresAnnotation on a Namespace is the time at which it expires, in RFC 3339, or ExpiresNever. The operator sets
	// it in policy spaces with spec.selfService.maxAge. Changing it needs the verb patch on policyspaces.
	ExpiresAnnotation = "policy.nstpl.dev/expires"
	ExpiresNever      = "never"

	// DeleteWhenExpiredAnnotation set to "true" on a Namespace consents to its deletion when it expires. Setting it on
	// an existing namespace needs the right to delete the namespace.
	DeleteWhenExpiredAnnotation = "policy.nstpl.dev/delete-when-expired"

	// DepthLabelSuffix ends the key of a label on a Namespace. The operator sets one for the namespace's space and for
	// each space above it: the key begins with the name of the space, and the value is the distance, 1 for the nearest.
	DepthLabelSuffix = ".tree.policy.nstpl.dev/depth"

	// TreeLabel names the root of the tree of policies that an object was compiled from. Tools find the objects by it
	// that are no longer in the tree.
	TreeLabel = "policy.nstpl.dev/tree"

	// TreeMetadataAnnotation on a Namespace lists the labels and annotations that a tree applied to it, by which
	// nstpl-sync finds those that the tree no longer declares.
	TreeMetadataAnnotation = "policy.nstpl.dev/tree-metadata"

	// SyncRequestedAnnotation on a PolicyRepository asks for a synchronization now. Its value is a time.
	SyncRequestedAnnotation = "policy.nstpl.dev/sync-requested-at"

	// ConfirmedCommitAnnotation on a PolicyRepository names a commit whose deletions of namespaces are confirmed.
	ConfirmedCommitAnnotation = "policy.nstpl.dev/confirmed-commit"

	// ConfirmedRollbackAnnotation on a PolicyRepository names a commit that may be applied although it is older than
	// the one in force. It does not confirm the deletions of that commit.
	ConfirmedRollbackAnnotation = "policy.nstpl.dev/confirmed-rollback"

	// AdoptAnnotation set to "true" on a Namespace allows a tree of policies to take over the namespace although it
	// existed before: Roles, RoleBindings and ResourceQuotas in it that the tree does not declare are deleted. Setting
	// it needs the right to delete those.
	AdoptAnnotation = "policy.nstpl.dev/adopt"

	// InTreeAnnotation set to "true" on a Namespace records that a tree of policies manages it: the namespace was
	// created in the tree, or adopted. Only the operator changes it.
	InTreeAnnotation = "policy.nstpl.dev/in-tree"

	// RecountAnnotation on the ResourceQuota named QuotaName holds the time at which reservations that the API server
	// has not recorded were dropped, or the limits were changed.
	RecountAnnotation = "policy.nstpl.dev/recounted"

	// RecountResource is limited for a moment in a ResourceQuota to make the API server count usage again. No objects
	// of this resource exist.
	RecountResource = "count/recounts.policy.nstpl.dev"

	// RequiredSCCAnnotation on a pod names the SecurityContextConstraints that must admit it. It cannot be changed.
	RequiredSCCAnnotation = "policy.nstpl.dev/required-scc"

	// SCCAnnotation on a pod names the SecurityContextConstraints that admitted it. SCCSubjectAnnotation records who
	// had the right to use them: user or serviceaccount.
	SCCAnnotation        = "policy.nstpl.dev/scc"
	SCCSubjectAnnotation = "policy.nstpl.dev/validated-scc-subject-type"

	// ConstraintsLabel is "true" on the MutatingWebhookConfiguration of the operator while there are
	// SecurityContextConstraints. Only then, the API server evaluates the policy that protects SCCAnnotation.
	ConstraintsLabel = "policy.nstpl.dev/constraints"

	// ReferencesAnnotation on SecurityContextConstraints holds the UIDs of the ServiceAccounts and Namespaces that
	// users and groups name, as the operator last observed them. An entry is removed when its object is deleted, or has
	// another UID.
	ReferencesAnnotation = "policy.nstpl.dev/references"

	// UIDRangeAnnotation, SupplementalGroupsAnnotation and MCSAnnotation on a Namespace hold what the operator
	// allocated to it and to no other namespace: user IDs and group IDs, as first/size, and an SELinux level.
	UIDRangeAnnotation           = "policy.nstpl.dev/scc.uid-range"
	SupplementalGroupsAnnotation = "policy.nstpl.dev/scc.supplemental-groups"
	MCSAnnotation                = "policy.nstpl.dev/scc.mcs"

	// AccountUIDAnnotation on a ServiceAccount holds the user ID that the operator allocated to it and to no other
	// ServiceAccount of the namespace. Only the operator changes it.
	AccountUIDAnnotation = "policy.nstpl.dev/scc.uid"
	// NextAccountUIDAnnotation on a Namespace holds the user ID that the next ServiceAccount is given, or the first
	// free one after it. So the ID of a deleted ServiceAccount is given again as late as possible.
	NextAccountUIDAnnotation = "policy.nstpl.dev/scc.next-uid"

	// RestartedAtAnnotation on a NamespaceTemplate holds the time of the last "kubectl nstpl rollout restart". A change
	// begins the rollout of the current revision again, also if it had stopped.
	RestartedAtAnnotation = "policy.nstpl.dev/restarted-at"

	// RevisionOfLabel on a ControllerRevision in the operator's namespace names the NamespaceTemplate of which it is a
	// revision. ChangeCauseAnnotation is copied from the template when the revision is made, as kubectl does.
	RevisionOfLabel       = "policy.nstpl.dev/revision-of"
	ChangeCauseAnnotation = "kubernetes.io/change-cause"

	// RulesAnnotationPrefix begins the key of an annotation that no object has; the key ends with a revision of the
	// rules. The operator sets it in dry runs: once that is denied, the API server enforces this revision.
	RulesAnnotationPrefix = "rules.policy.nstpl.dev/"
)

const (
	// FieldManager is the field manager with which the operator applies populated objects.
	FieldManager = "nstpl"

	// NamespaceFieldManager is the field manager with which the operator writes the labels and annotations of
	// Namespaces that templates declare.
	NamespaceFieldManager = FieldManager + "-namespace"

	// QuotaName is the name of the ResourceQuota by which the API server counts usage for the quotas of policy spaces,
	// in each namespace that such a quota limits.
	QuotaName = "nstpl-policyspace"

	// DeletionFinalizer keeps a NamespaceTemplate with deletionPolicy Delete until its objects are deleted.
	DeletionFinalizer = "policy.nstpl.dev/delete-populated-objects"

	// AggregateLabel set to "true" on a ClusterRole adds its rules to those of the operator.
	AggregateLabel = "policy.nstpl.dev/aggregate-to-operator"

	// VersionLabel on the operator's Lease holds the version of the operator that leads.
	VersionLabel = "app.kubernetes.io/version"
)

// TemplateInitializer is the initializer that populates namespaces.
const TemplateInitializer = "namespace-template"

// Custom verbs for RBAC rules.
const (
	// VerbUse on a NamespaceTemplate that requires permission allows a user to make it select namespaces. On a
	// PolicySpace it allows a user to put namespaces into the space and to take them out.
	VerbUse = "use"
	// VerbOptOut on namespacetemplates allows a user to opt namespaces out and in.
	VerbOptOut = "optout"
	// VerbSetCreator on namespacetemplates allows a user to name another user as the creator of a namespace, who gets
	// what templates give to creators.
	VerbSetCreator = "set-creator"
	// VerbExempt on a NamespaceTemplate allows a user to exempt namespaces from it, or from its objects.
	VerbExempt = "exempt"
	// VerbUnprotect on an object allows a user to remove DeletionProtectionAnnotation from it, and on a Namespace also
	// to add it.
	VerbUnprotect = "unprotect"
	// VerbInitialize on a Namespace allows writes into it while it is being initialized, and the removal of pending
	// initializers.
	VerbInitialize = "initialize"
)

// Conditions of every kind, as kstatus defines them, so that kubectl wait, Flux and Argo CD understand each kind alike.
const (
	// ConditionReady is True if the object is in force as it is stored.
	ConditionReady = "Ready"
	// ConditionReconciling is present, and True, while the operator still works on the object.
	ConditionReconciling = "Reconciling"
	// ConditionStalled is present, and True, if a person must act before the object can be in force.
	ConditionStalled = "Stalled"
)

// TrialNamespace is the namespace in which a template is tried with a dry run before it is accepted. Nothing is stored
// in it.
const TrialNamespace = "nstpl-trial"

// The operator's namespace, user, Lease and webhooks, and the ConfigMaps that it reads and keeps.
const (
	OperatorNamespace      = "nstpl-system"
	OperatorServiceAccount = "nstpl-operator"
	OperatorUser           = "system:serviceaccount:" + OperatorNamespace + ":" + OperatorServiceAccount
	OperatorLease          = "nstpl-operator"
	// WebhookName is the name of both webhook configurations of all plugins that have no configuration of their own.
	WebhookName = "nstpl-operator"
	// AttributeWebhookName and ConstraintWebhookName are the names of the ValidatingWebhookConfigurations of
	// ProtectedAttributes and of SecurityContextConstraints.
	AttributeWebhookName  = "nstpl-operator-attributes"
	ConstraintWebhookName = "nstpl-operator-constraints"

	WebhookService = "nstpl-operator-webhook"
	WebhookSecret  = "nstpl-operator-webhook"
	// AutoOptOutConfigMap lists users and groups whose new namespaces are opted out.
	AutoOptOutConfigMap = "nstpl-auto-opt-out"
	// SelectorsConfigMap has the selectors of templates and initializers, for the admission policies.
	SelectorsConfigMap = "nstpl-selectors"
	// AllocationsConfigMap records which block of user IDs is allocated next.
	AllocationsConfigMap = "nstpl-allocations"
)

// NamespacePopulated is the condition in the status of a Namespace that reports whether it has every object that
// templates declare for it.
const NamespacePopulated = "policy.nstpl.dev/Populated"

// NamespaceExpired is the condition in the status of a Namespace that has expired, or soon will. Others lack it.
const NamespaceExpired = "policy.nstpl.dev/Expired"
