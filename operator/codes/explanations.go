package codes

import "slices"

// Explanation explains a code in full sentences.
type Explanation struct {
	Code Code
	// Meaning is what the code says about a request.
	Meaning string
	// DecidedBy is the part of nstpl that denied or delayed the request.
	DecidedBy string
	// User and Administrator are what they can do about it.
	User, Administrator string
}

// Explain returns the explanation of a code. It reports false if the code is unknown.
func Explain(code Code) (Explanation, bool) {
	i := slices.IndexFunc(explanations, func(e Explanation) bool { return e.Code == code })
	if i < 0 {
		return Explanation{}, false
	}
	return explanations[i], true
}

// All returns the explanations of all codes, in the order in which the manual lists them.
func All() []Explanation { return slices.Clone(explanations) }

const (
	byNamespacePolicy  = "the ValidatingAdmissionPolicy nstpl-namespace-guard"
	byConstraints      = "the operator's webhook for SecurityContextConstraints"
	byTemplates        = "the operator's webhook for NamespaceTemplates"
	byAttributes       = "the operator's webhook for protected attributes"
	bySpaces           = "the operator's webhook for PolicySpaces"
	byQuotas           = "the operator's webhook for the quotas of policy spaces"
	repeatRequest      = "Repeat the request. Controllers and kubectl apply do so by themselves."
	nothingUnlessOften = "Nothing, unless it happens often: then check the load of the operator."
	askForNamedVerb    = "Ask an administrator for the verb that the message names."
	grantNamedVerb     = "Grant the verb that the message names, if the user is meant to do this."
	omitOperatorsField = "Leave these fields out of the request. The operator keeps them."
)

var explanations = []Explanation{
	{
		Code:      Held,
		Meaning:   "The namespace is new and is not initialized yet, so writes into it wait.",
		DecidedBy: "the operator's webhook hold",
		User: "Repeat the request after some seconds. See what the namespace waits for with " +
			"'kubectl nstpl why namespace/NAME'.",
		Administrator: "Check that the operator and the initializers that the message names are running. Remove an " +
			"initializer that no longer exists from the NamespaceInitializationConfiguration.",
	},
	{
		Code: PopulationFailed,
		Meaning: "An object of a template could not be created in a new namespace, so writes into the namespace are " +
			"denied until a person acts.",
		DecidedBy: "the operator's webhook hold, because of the condition policy.nstpl.dev/Populated of the namespace",
		User:      "Ask an administrator of the template that the message names to correct it.",
		Administrator: "Correct the template, or resolve what prevents the object. The operator tries again by itself, " +
			"and the namespace opens once it is populated.",
	},
	{
		Code: ConstraintDenied,
		Meaning: "No SecurityContextConstraints that the pod's service account or its creator may use allow the " +
			"fields of the pod.",
		DecidedBy: byConstraints,
		User: "Change the fields that the message names. 'kubectl nstpl scc review -f FILE' shows the decision of each " +
			"constraint.",
		Administrator: "If the pod needs these fields, grant its service account the verb use on " +
			"SecurityContextConstraints that allow them. 'kubectl nstpl scc who-can-use NAME' shows who may use them.",
	},
	{
		Code:          ConstraintRequired,
		Meaning:       "The annotation policy.nstpl.dev/required-scc of a pod cannot be changed.",
		DecidedBy:     byConstraints,
		User:          "Delete the pod and create it with another value.",
		Administrator: "Nothing: this holds for every user.",
	},
	{
		Code: ConstraintRecord,
		Meaning: "The annotations that record which SecurityContextConstraints admitted a pod cannot be changed through " +
			"subresources.",
		DecidedBy:     "the ValidatingAdmissionPolicy nstpl-scc-record",
		User:          "Leave these annotations out of the request.",
		Administrator: "Nothing: this holds for every user.",
	},
	{
		Code:          ConstraintChanged,
		Meaning:       "SecurityContextConstraints or rights changed while the request for a pod was checked.",
		DecidedBy:     byConstraints,
		User:          repeatRequest,
		Administrator: nothingUnlessOften,
	},
	{
		Code: ConstraintAccount,
		Meaning: "The annotation with the user ID of a service account cannot be set, changed or removed: the IDs of " +
			"two service accounts must differ.",
		DecidedBy:     "the ValidatingAdmissionPolicy nstpl-scc-account",
		User:          "Leave the annotation as it is, or out of a new service account.",
		Administrator: "Nothing: this holds for every user. A backup is restored without the annotation.",
	},
	{
		Code: AttributeProtected,
		Meaning: "A ProtectedAttribute or ClusterProtectedAttribute permits only some roles to set, change or remove " +
			"the label or annotation.",
		DecidedBy: byAttributes,
		User: "Use a value that another rule allows, leave the attribute as it is, or ask for the role that the message " +
			"names. 'kubectl nstpl attributes' shows the rules.",
		Administrator: "Bind the role to the user in this namespace, or change the rule.",
	},
	{
		Code: AttributeRule,
		Meaning: "A ProtectedAttribute would permit a change of an attribute that a ClusterProtectedAttribute protects " +
			"in all namespaces.",
		DecidedBy:     byAttributes,
		User:          "Choose another attribute, or ask an administrator to create the rule.",
		Administrator: "Create the rule, or grant the verb create on clusterprotectedattributes.",
	},
	{
		Code:      QuotaExceeded,
		Meaning:   "The quota of a policy space has no room for the request in any of its namespaces.",
		DecidedBy: byQuotas,
		User: "Request less, or delete objects in a namespace of the policy space. If count/namespaces is exceeded, delete " +
			"a namespace, or use another policy space. 'kubectl describe policyspace NAME' shows the usage.",
		Administrator: "Raise spec.quota.hard of the policy space, or move namespaces to another one.",
	},
	{
		Code:          QuotaUncounted,
		Meaning:       "The usage of a namespace is not counted yet for the quota of a policy space.",
		DecidedBy:     byQuotas,
		User:          "Repeat the request after some seconds.",
		Administrator: "Nothing, unless it lasts: then check that the operator and kube-controller-manager are running.",
	},
	{
		Code: CreatorQuota,
		Meaning: "The user who created the namespace has as many namespaces in the policy space, and below it, as its quota " +
			"allows the same creator.",
		DecidedBy:     byQuotas,
		User:          "Delete one of your namespaces there, or use another policy space.",
		Administrator: "Raise spec.quota.namespacesPerCreator.hard of the policy space, or add an exception for the user.",
	},
	{
		Code:          UsageQuota,
		Meaning:       "Only the operator changes the ResourceQuota nstpl-policyspace, which counts usage for policy spaces.",
		DecidedBy:     "the ValidatingAdmissionPolicy nstpl-quota-guard",
		User:          "Leave the object as it is.",
		Administrator: "Change spec.quota.hard of the policy space instead.",
	},
	{
		Code: PolicySpaceUse,
		Meaning: "Putting a namespace or a policy space into a policy space, or taking it out, requires the verb use on " +
			"that policy space.",
		DecidedBy:     byNamespacePolicy + " or nstpl-policyspace-parent-use",
		User:          askForNamedVerb,
		Administrator: grantNamedVerb,
	},
	{
		Code:      PolicySpaceNotFound,
		Meaning:   "A label of a namespace, or the parent of a policy space, names a policy space that does not exist.",
		DecidedBy: bySpaces,
		User: "Correct the name, or create the policy space first. The message suggests a similar name only if you may " +
			"use or get that policy space.",
		Administrator: "Nothing: this holds for every user, but not for ServiceAccounts or objects of trees.",
	},
	{
		Code:      PolicySpaceInUse,
		Meaning:   "Namespaces are in the policy space that the request would delete, or in one below it.",
		DecidedBy: bySpaces,
		User:      "Delete these namespaces, or move them to another policy space, before you delete this one.",
		Administrator: "Nothing: this holds for every user. A ServiceAccount may delete a policy space of a tree. " +
			"'kubectl nstpl tree NAME' shows what is in the policy space.",
	},
	{
		Code:          PolicySpaceInvalid,
		Meaning:       "The policy space would be its own ancestor, or has limits that no ResourceQuota can have.",
		DecidedBy:     bySpaces,
		User:          "Correct the field that the message names.",
		Administrator: "Nothing: this holds for every user.",
	},
	{
		Code: SelfService,
		Meaning: "The rules of a policy space for self-service do not allow a namespace with this name, these labels or " +
			"this end, or a policy space would leave the rules, or users may create namespaces only where such rules exist.",
		DecidedBy:     "the operator's webhook for self-service",
		User:          "Choose the name, the labels or the policy space that the message names.",
		Administrator: "Change spec.selfService of the policy space, or create the namespace for the user.",
	},
	{
		Code: Expiry,
		Meaning: "Administrators of policy spaces change the time at which a namespace expires. Users who may delete the " +
			"namespace consent to its deletion at that time, and move it to another policy space while it has the consent.",
		DecidedBy:     byNamespacePolicy,
		User:          "Ask an administrator for more time before the namespace expires.",
		Administrator: "Set the annotation policy.nstpl.dev/expires of the namespace to a later time, or to never.",
	},
	{
		Code:          TemplateUse,
		Meaning:       "A template that requires permission would select the namespace.",
		DecidedBy:     "the ValidatingAdmissionPolicy nstpl-template-use or nstpl-namespace-guard",
		User:          "Choose other labels for the namespace, or ask for the verb use on the template.",
		Administrator: grantNamedVerb,
	},
	{
		Code:          TemplateInvalid,
		Meaning:       "The template, or an object that it declares, is invalid or cannot be created in namespaces.",
		DecidedBy:     byTemplates,
		User:          "Correct what the message names. 'kubectl nstpl vet -f FILE' checks the template before you apply it.",
		Administrator: "If the operator lacks a right, add a ClusterRole with the label that the message names.",
	},
	{
		Code: TemplateAuthor,
		Meaning: "The author of a template needs in all namespaces the rights that the operator uses for the template, " +
			"and some are missing.",
		DecidedBy:     byTemplates,
		User:          "Ask for the rights that the message names, or let an administrator apply the template.",
		Administrator: "Grant the rights in all namespaces, or apply the template yourself.",
	},
	{
		Code:          OptOut,
		Meaning:       "Opting a namespace out of templates, or in again, requires the verb optout on namespacetemplates.",
		DecidedBy:     byNamespacePolicy + " or nstpl-template-use",
		User:          "Leave out the annotation policy/namespace-template-opt-out, or ask for the verb optout.",
		Administrator: grantNamedVerb,
	},
	{
		Code:          Exemption,
		Meaning:       "Exempting a namespace from a template, or from its objects, requires the verb exempt on the template.",
		DecidedBy:     "the ValidatingAdmissionPolicy nstpl-exemption-guard",
		User:          "Ask for the verb exempt on the namespacetemplates that the message names, or ask a user who has it.",
		Administrator: grantNamedVerb,
	},
	{
		Code: Creator,
		Meaning: "The annotation authorization.k8s.io/creator names the user who created the namespace. To name another user " +
			"requires the verb set-creator on namespacetemplates.",
		DecidedBy: byNamespacePolicy,
		User:      "Leave the annotation out of the request: admission sets it.",
		Administrator: "If a namespace is restored, moved or handed over, do it as a user with the verb, such as by " +
			"'kubectl nstpl transfer'.",
	},
	{
		Code:          Initialization,
		Meaning:       "Only initializers end or prolong the initialization of a namespace.",
		DecidedBy:     byNamespacePolicy,
		User:          "Wait until the namespace is initialized.",
		Administrator: grantNamedVerb,
	},
	{
		Code:          ManagedNamespace,
		Meaning:       "The operator manages the label or annotation of the namespace that the request changes.",
		DecidedBy:     byNamespacePolicy,
		User:          omitOperatorsField,
		Administrator: "Nothing, unless the value is wrong: users who may patch all namespacetemplates can correct it.",
	},
	{
		Code: ManagedObject,
		Meaning: "The request changes the records with which the operator recognizes the objects of a template: a " +
			"label, annotations, or its entry in managedFields. Or it changes the rules of a Role of a template, deletes " +
			"the Role, or changes a ConfigMap in nstpl-system that decides what nstpl does.",
		DecidedBy:     "the ValidatingAdmissionPolicy nstpl-object-guard, or nstpl-record-guard in nstpl-system",
		User:          omitOperatorsField + " To change the object itself, change its template.",
		Administrator: "Change the template. Users who may patch it can also change these records.",
	},
	{
		Code: Adoption,
		Meaning: "The annotation policy.nstpl.dev/adopt lets a tree of policies delete objects in the namespace, so " +
			"setting it requires the rights to delete them.",
		DecidedBy:     byNamespacePolicy,
		User:          "Ask an administrator to set the annotation, or for the rights that the message names.",
		Administrator: "Set the annotation yourself, or grant the rights.",
	},
	{
		Code:          OperatorRole,
		Meaning:       "The label policy.nstpl.dev/aggregate-to-operator grants the rules of a ClusterRole to the operator.",
		DecidedBy:     "the ValidatingAdmissionPolicy nstpl-role-guard",
		User:          askForNamedVerb,
		Administrator: grantNamedVerb,
	},
	{
		Code:          TrialNamespace,
		Meaning:       "Nothing can be stored in the namespace nstpl-trial, in which templates are tried by dry runs.",
		DecidedBy:     "the ValidatingAdmissionPolicy nstpl-trial-guard",
		User:          "Use another namespace.",
		Administrator: "Nothing: this holds for every user.",
	},
	{
		Code: DeletionProtected,
		Meaning: "The annotation policy.nstpl.dev/deletion-protection protects the namespace, or the object of a template, " +
			"from deletion.",
		DecidedBy:     "the ValidatingAdmissionPolicy nstpl-namespace-protection or nstpl-object-protection",
		User:          "Keep the object, or ask a user with the verb unprotect on it to remove the annotation.",
		Administrator: "Remove the annotation, and then delete the object. This holds for every user.",
	},
	{
		Code: DeletionProtection,
		Meaning: "The annotation policy.nstpl.dev/deletion-protection is true or false, and only users with the verb " +
			"unprotect remove it, or add it to an existing namespace.",
		DecidedBy:     byNamespacePolicy + " or nstpl-object-guard",
		User:          "Leave the annotation as it is, or ask for the verb unprotect.",
		Administrator: grantNamedVerb,
	},
	{
		Code: InvalidObject,
		Meaning: "An object of nstpl has a field of the wrong type, an initializer selects namespaces by a label that a " +
			"template sets, or an annotation of a namespace has an unknown value or the annotations are too large.",
		DecidedBy:     "the operator's webhook for this kind, or the ValidatingAdmissionPolicy nstpl-namespace-guard",
		User:          "Correct the field that the message names. 'kubectl explain' shows the types.",
		Administrator: "If the field is right, the CustomResourceDefinitions and the operator have different versions.",
	},
	{
		Code: SelectorsFull,
		Meaning: "The selectors of templates that require permission, and of initializers, do not fit into the ConfigMap " +
			"nstpl-selectors.",
		DecidedBy: "the operator's webhook for NamespaceTemplates and NamespaceInitializationConfigurations",
		User:      "Use shorter selectors, or several templates with the same selector.",
		Administrator: "Remove templates that are no longer used, or select namespaces by few labels, such as one per " +
			"kind of namespace.",
	},
	{
		Code:          Busy,
		Meaning:       "The operator could not decide in time, or another request was faster. Nothing is wrong with the request.",
		DecidedBy:     "the operator's webhooks",
		User:          repeatRequest,
		Administrator: nothingUnlessOften,
	},
	{
		Code:      Undecided,
		Meaning:   "The operator could not decide because of an error, and the request must not pass unchecked.",
		DecidedBy: "the operator's webhooks",
		User:      "Repeat the request. If the error remains, show the message to an administrator.",
		Administrator: "See the log of the operator: the message names what it could not read. Its right to read it may " +
			"be missing.",
	},
	{
		Code:          InternalCheck,
		Meaning:       "The request looks like one with which the operator asks the API server which rules are in force.",
		DecidedBy:     byAttributes + ", " + byQuotas + ", or the ValidatingAdmissionPolicy nstpl-selectors-known",
		User:          "Remove the annotation, the label or the data that the message names.",
		Administrator: "Nothing: this holds for every user.",
	},
}
