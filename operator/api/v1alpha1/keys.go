package v1alpha1

// Labels and annotations. The proposal's keys (Namespace Population) are kept where Kubernetes accepts them.
const (
	// TemplateNameLabel names, on a populated object, the NamespaceTemplate that declares it.
	TemplateNameLabel = "policy/namespace-template-name"

	// TemplateApplyAnnotation set to TemplateApplyDisable switches a NamespaceTemplate off.
	TemplateApplyAnnotation = "policy/namespace-template-apply"
	TemplateApplyDisable    = "disable"

	// RequirePermissionAnnotation set to "true" on a NamespaceTemplate keeps namespaces from matching it unless whoever
	// makes them match has the verb use on it. The proposal's key has two slashes, which no key may have.
	RequirePermissionAnnotation = "policy/namespace-template-require-permission"

	// OptOutAnnotation set to "true" on a Namespace keeps it from being populated; what is there stays.
	OptOutAnnotation = "policy/namespace-template-opt-out"

	// CreatorAnnotation holds, on a Namespace, the name of the user who created it. It is an annotation because
	// user names are no valid label values. Admission sets it, and nobody changes it.
	CreatorAnnotation = "authorization.k8s.io/creator"

	// InitializingLabel set to "true" on a Namespace says that it is still being initialized, so that the hold on
	// writes into it concerns just such namespaces.
	InitializingLabel = "policy/namespace-initializing"

	// PendingAnnotation lists, on an initializing Namespace, the initializers still to finish, separated by commas.
	PendingAnnotation = "policy/namespace-initializers-pending"

	// ReplaceAnnotation set to "true" on a template's object lets it be deleted and created anew where a change
	// can't be made in place. RBAC bindings need no such consent.
	ReplaceAnnotation = "policy/replace"

	// HashAnnotation holds, on a populated object, the hash of what the template declared when it was applied. With
	// managedFields it tells from metadata alone whether an object is as declared.
	HashAnnotation = "policy.nstpl.dev/applied-hash"

	// AdoptedAnnotation set to "true" on a populated object says that somebody else created it: it is never pruned.
	AdoptedAnnotation = "policy.nstpl.dev/adopted"

	// UnownedAnnotation lists, on a populated object, the declared fields that the API server keeps no owner of, such
	// as an empty list whose items are merged: that nobody owns them is no drift.
	UnownedAnnotation = "policy.nstpl.dev/unowned-fields"

	// SealAnnotation says, on a Namespace, which objects of templates with driftPolicy Report were there, so that one
	// that is missing later is known to have been deleted.
	SealAnnotation = "policy.nstpl.dev/reported-objects"

	// PolicySpaceLabel names, on a Namespace, the PolicySpace that it is in. Setting it needs the verb use on that
	// space.
	PolicySpaceLabel = "policy.nstpl.dev/policyspace"

	// DepthLabelSuffix ends, on a Namespace, a label for each space that it is in, the nearest and all above it: the
	// name of the space begins the key, and the value is how far up it is: 1 for the nearest. The operator keeps them.
	DepthLabelSuffix = ".tree.policy.nstpl.dev/depth"

	// TreeLabel names, on what a folder of policies is compiled to, the root of the folder, so that what is there of a
	// folder that has it no longer is found.
	TreeLabel = "policy.nstpl.dev/tree"

	// AdoptAnnotation set to "true" on a Namespace consents to a tree of policies taking over the namespace, although
	// it existed before: Roles, RoleBindings and ResourceQuotas in it that the tree does not declare are deleted.
	// Setting it needs the right to delete those.
	AdoptAnnotation = "policy.nstpl.dev/adopt"

	// InTreeAnnotation set to "true" on a Namespace says that a tree of policies manages it: the namespace was created
	// in one, or was adopted. The operator keeps it.
	InTreeAnnotation = "policy.nstpl.dev/in-tree"

	// RecountAnnotation changes on the ResourceQuota of QuotaName when what was booked and never written down is to be
	// let go, and when its limits change: it is the time of that.
	RecountAnnotation = "policy.nstpl.dev/recounted"

	// RecountResource is limited for a moment in ResourceQuotas that the API server is to count again. There is none of
	// it.
	RecountResource = "count/recounts.policy.nstpl.dev"

	// RequiredSCCAnnotation names, on a pod, the SecurityContextConstraints that must admit it. It can't be changed.
	RequiredSCCAnnotation = "policy.nstpl.dev/required-scc"

	// SCCAnnotation names, on a pod, the SecurityContextConstraints that admitted it, and SCCSubjectAnnotation by whose
	// right: user or serviceaccount.
	SCCAnnotation        = "policy.nstpl.dev/scc"
	SCCSubjectAnnotation = "policy.nstpl.dev/validated-scc-subject-type"

	// ReferencesAnnotation holds, on SecurityContextConstraints, the UIDs of the ServiceAccounts and Namespaces that
	// users and groups name, as the operator last saw them. An entry whose object has another UID by now, or none, is
	// removed.
	ReferencesAnnotation = "policy.nstpl.dev/references"

	// UIDRangeAnnotation, SupplementalGroupsAnnotation and MCSAnnotation are what the operator gives a Namespace, that
	// no other has: user ids and groups, as first/size, and an SELinux level.
	UIDRangeAnnotation           = "policy.nstpl.dev/scc.uid-range"
	SupplementalGroupsAnnotation = "policy.nstpl.dev/scc.supplemental-groups"
	MCSAnnotation                = "policy.nstpl.dev/scc.mcs"

	// RulesAnnotationPrefix begins the name of an annotation that nobody sets: the API server is seen to ask about
	// protected attributes by its being refused. A revision of the rules ends it.
	RulesAnnotationPrefix = "rules.policy.nstpl.dev/"
)

const (
	// FieldManager is the server-side apply manager of populated objects.
	FieldManager = "nstpl"

	// QuotaName is what the ResourceQuota is called by which the API server counts for the quotas of policyspaces, in
	// each namespace that is under one.
	QuotaName = "nstpl-policyspace"

	// DeletionFinalizer keeps a NamespaceTemplate with deletionPolicy Delete until its objects are gone.
	DeletionFinalizer = "policy.nstpl.dev/delete-populated-objects"

	// AggregateLabel set to "true" on a ClusterRole adds its rules to the operator's.
	AggregateLabel = "policy.nstpl.dev/aggregate-to-operator"

	// VersionLabel carries, on the operator's Lease, the version of the operator that leads.
	VersionLabel = "app.kubernetes.io/version"
)

// TemplateInitializer is the initializer that populates namespaces.
const TemplateInitializer = "namespace-template"

// Verbs of the project's own, for roles.
const (
	// VerbUse on a NamespaceTemplate lets namespaces match one that requires permission; on a PolicySpace, be in it or
	// not.
	VerbUse = "use"
	// VerbOptOut on namespacetemplates lets namespaces be opted out.
	VerbOptOut = "optout"
	// VerbInitialize on a Namespace lets it be written into while it is being initialized, and its initializers be
	// ended.
	VerbInitialize = "initialize"
)

// Where the operator runs, who it is, which Lease its leader holds, what its webhooks are called, and who is always
// opted out.
const (
	OperatorNamespace   = "nstpl-system"
	OperatorUser        = "system:serviceaccount:" + OperatorNamespace + ":nstpl-operator"
	OperatorLease       = "nstpl-operator"
	WebhookName         = "nstpl-operator"
	WebhookService      = "nstpl-operator-webhook"
	WebhookSecret       = "nstpl-operator-webhook"
	AutoOptOutConfigMap = "nstpl-auto-opt-out"
	// AllocationsConfigMap is where it is written down which block of user ids is given next.
	AllocationsConfigMap = "nstpl-allocations"
)

// NamespacePopulated is the condition in a Namespace's own status that says whether every object that templates
// declare for it is there.
const NamespacePopulated = "policy.nstpl.dev/Populated"
