package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// NamespaceTemplate declares objects for namespaces. The operator creates them in every namespace that the template
// selects, corrects them when others change them, and deletes those that it created when they are no longer declared. A
// namespace is held until the objects of all its templates exist, and then has the condition
// policy.nstpl.dev/Populated.
//
// If two templates declare the same object, the template whose name comes later in the alphabet wins. The annotation
// policy/namespace-template-apply: disable switches a template off. With the annotation
// policy/namespace-template-require-permission: "true", a template selects only namespaces of users who have the verb
// use on it.
//
// Example:
//
//	apiVersion: policy.nstpl.dev/v1alpha1
//	kind: NamespaceTemplate
//	metadata:
//	  name: budget
//	spec:
//	  namespaces:
//	    labelSelector: {}
//	  templates:
//	  - apiVersion: v1
//	    kind: ResourceQuota
//	    metadata:
//	      name: budget
//	    spec:
//	      hard:
//	        pods: "50"
//	  - apiVersion: rbac.authorization.k8s.io/v1
//	    kind: RoleBinding
//	    metadata:
//	      name: creator-admin
//	    roleRef:
//	      apiGroup: rbac.authorization.k8s.io
//	      kind: ClusterRole
//	      name: admin
//	    subjects:
//	    - apiGroup: rbac.authorization.k8s.io
//	      kind: User
//	      name: $(CREATOR)
//	  overlays:
//	  - name: production
//	    namespaces:
//	      labelSelector:
//	        matchLabels:
//	          tier: production
//	    patches:
//	    - patch: |
//	        apiVersion: v1
//	        kind: ResourceQuota
//	        metadata:
//	          name: budget
//	        spec:
//	          hard:
//	            pods: "500"
//	  driftPolicy: Correct
//	  failurePolicy: Fail
//	  deletionPolicy: Orphan
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=nstpl
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Accepted",type=string,JSONPath=`.status.conditions[?(@.type=="Accepted")].status`
// +kubebuilder:printcolumn:name="Populated",type=string,JSONPath=`.status.conditions[?(@.type=="Populated")].status`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Matched",type=integer,JSONPath=`.status.namespaces.matched`
// +kubebuilder:printcolumn:name="Updated",type=integer,JSONPath=`.status.namespaces.updated`
// +kubebuilder:printcolumn:name="Failed",type=integer,JSONPath=`.status.namespaces.failed`
// +kubebuilder:printcolumn:name="Drifted",type=integer,JSONPath=`.status.namespaces.drifted`
// +kubebuilder:printcolumn:name="Drift-Policy",type=string,JSONPath=`.spec.driftPolicy`,priority=1
// +kubebuilder:printcolumn:name="Deletion-Policy",type=string,JSONPath=`.spec.deletionPolicy`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.metadata.name.size() <= 63",message="the name of a NamespaceTemplate is a label value on the objects it populates, so it has at most 63 characters"
type NamespaceTemplate struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is which namespaces the template selects, and what it declares for them.
	// +required
	Spec NamespaceTemplateSpec `json:"spec"`
	// status is what the operator observed. The operator writes it.
	// +optional
	Status NamespaceTemplateStatus `json:"status,omitempty"`
}

// NamespaceTemplateList is a list of NamespaceTemplates.
//
// +kubebuilder:object:root=true
type NamespaceTemplateList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []NamespaceTemplate `json:"items"`
}

// NamespaceTemplateSpec is which namespaces a template selects, and what it declares for them.
type NamespaceTemplateSpec struct {
	// namespaces selects the namespaces to populate, for example {labelSelector: {matchLabels: {team: payments}}}. The
	// namespaces kube-system, kube-public, kube-node-lease, nstpl-system and nstpl-trial, and those in the operator's
	// flag --exclude-namespaces, are never populated.
	// +required
	// +kubebuilder:validation:XValidation:rule="!has(self.labelSelector.matchExpressions) || self.labelSelector.matchExpressions.all(e, e.operator in ['In', 'NotIn', 'Exists', 'DoesNotExist'])",message="an operator of matchExpressions is In, NotIn, Exists or DoesNotExist"
	// +kubebuilder:validation:XValidation:rule="!has(self.labelSelector.matchExpressions) || self.labelSelector.matchExpressions.all(e, (e.operator in ['In', 'NotIn']) == (has(e.values) && size(e.values) > 0))",message="In and NotIn need values, Exists and DoesNotExist take none"
	// +kubebuilder:validation:XValidation:rule="(!has(self.labelSelector.matchLabels) || size(self.labelSelector.matchLabels) <= 32) && (!has(self.labelSelector.matchExpressions) || size(self.labelSelector.matchExpressions) <= 32)",message="a selector has at most 32 matchLabels and 32 matchExpressions"
	// +kubebuilder:validation:XValidation:rule="!has(self.labelSelector.matchExpressions) || [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31].map(i, i < size(self.labelSelector.matchExpressions) && has(self.labelSelector.matchExpressions[i].values) ? size(self.labelSelector.matchExpressions[i].values) : 0).sum() <= 1024",message="the matchExpressions of a selector have at most 1024 values together"
	Namespaces NamespaceSelector `json:"namespaces"`

	// templates are the objects to populate: namespaced objects of any kind, without metadata.namespace. In string
	// values, the token $(NAMESPACE) stands for the name of the namespace, and $(CREATOR) for the user who created it.
	// $(LABEL:key) and $(ANNOTATION:key) stand for a label and an annotation of the namespace, which a
	// ClusterProtectedAttribute has to protect. $$(NAMESPACE) stays as a literal $(NAMESPACE). An author needs the
	// rights to create and patch these objects in all namespaces, and to grant what their roles grant.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=512
	// +kubebuilder:validation:items:XPreserveUnknownFields
	Templates []runtime.RawExtension `json:"templates,omitempty"`

	// sources are objects of other namespaces to copy, such as a pull secret or a CA bundle. A copy follows each change
	// of its source. An author needs the right to get each source, now and whenever the template is changed, besides
	// the rights to create and patch its kind in all namespaces. The operator needs the right to get the source, too,
	// by a Role with resourceNames in the source's namespace. While a source does not exist or cannot be read,
	// namespaces report that. Copies whose source, or the right to read it, is lost follow the deletionPolicy.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	Sources []Source `json:"sources,omitempty"`

	// namespaceMetadata are labels and annotations of the selected Namespaces themselves, for example {labels:
	// {pod-security.kubernetes.io/enforce: baseline}}. They are set before the namespace can be used. In values, the
	// tokens of templates are replaced. A value that another client sets is drift, also one from before the template.
	// What nstpl added is removed when it is no longer declared. An author needs the right to patch all namespaces, and
	// the roles of protected attributes. A label by which any template selects namespaces cannot be set, and neither
	// can the labels and annotations of nstpl.
	// +optional
	NamespaceMetadata *NamespaceMetadata `json:"namespaceMetadata,omitempty"`

	// overlays are kustomize layers that change the objects in some of the namespaces. They are applied in this order,
	// so a later overlay wins.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=32
	Overlays []Overlay `json:"overlays,omitempty"`

	// driftPolicy is what happens when a user or another controller changes or deletes a populated object. Correct, the
	// default, restores what the template declares. Report leaves the object as it is and reports the difference in
	// conditions, Events and metrics. Fields that no template declares are not compared.
	// +optional
	// +kubebuilder:default=Correct
	DriftPolicy DriftPolicy `json:"driftPolicy,omitempty"`

	// failurePolicy is whether a namespace can be Populated although an object of this template cannot be applied.
	// Fail, the default, keeps the namespace's condition Populated False. Ignore only reports the failure.
	// +optional
	// +kubebuilder:default=Fail
	FailurePolicy FailurePolicy `json:"failurePolicy,omitempty"`

	// deletionPolicy is what happens to the objects when the template is deleted, is switched off or no longer selects
	// the namespace. Orphan, the default, leaves them as they are. Delete deletes those that the operator created. Then
	// the template itself is deleted after its objects.
	// +optional
	// +kubebuilder:default=Orphan
	DeletionPolicy DeletionPolicy `json:"deletionPolicy,omitempty"`

	// authoritative lists kinds of which the selected namespaces may contain only what templates declare, for example
	// {group: rbac.authorization.k8s.io, kind: RoleBinding}. The operator deletes other objects of these kinds, no
	// matter who created them, but not those that Kubernetes itself puts into every namespace. By default the list is
	// empty, and undeclared objects are left alone.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	Authoritative []GroupKind `json:"authoritative,omitempty"`

	// authoritativePolicy is what happens to undeclared objects of authoritative kinds. Delete, the default, deletes
	// them. Report leaves them and reports them, so that you can see what Delete would do.
	// +optional
	AuthoritativePolicy AuthoritativePolicy `json:"authoritativePolicy,omitempty"`

	// rollout is how a change of the template reaches the namespaces that exist. Without it, the change first reaches a
	// few namespaces, and then more and more of the others, as long as none of them fails.
	// +optional
	Rollout *Rollout `json:"rollout,omitempty"`

	// revisionHistoryLimit is the number of old revisions to keep, to which "kubectl nstpl rollout undo" can return.
	// Revisions that some namespaces still have are kept in addition.
	// +optional
	// +kubebuilder:default=10
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	RevisionHistoryLimit *int32 `json:"revisionHistoryLimit,omitempty"`
}

// DefaultRevisionHistoryLimit is the default of spec.revisionHistoryLimit.
const DefaultRevisionHistoryLimit = 10

// Rollout is how a change of a template reaches namespaces. A change of the fields rollout and revisionHistoryLimit
// alone is not rolled out.
type Rollout struct {
	// paused stops the rollout until the field is removed or false. Namespaces that are created meanwhile get the
	// changed template, unless the rollout failed.
	// +optional
	Paused bool `json:"paused,omitempty"`

	// waves divide the namespaces of the template. A wave begins when all namespaces of the waves before it are
	// populated, or have failed without stopping the rollout. A namespace belongs to the first wave that selects it.
	// Those that no wave selects form the last wave.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	Waves []Wave `json:"waves,omitempty"`

	// maxUnavailable is how many namespaces are updated at a time: a number, or a percentage of the namespaces of the
	// wave, rounded up. By default, a wave is updated as a whole, and a rollout without waves begins with a few
	// namespaces.
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 1 : self.matches('^([1-9][0-9]?|100)%$')",message="must be at least 1, or a percentage from 1% to 100%"
	MaxUnavailable *intstr.IntOrString `json:"maxUnavailable,omitempty"`

	// maxFailures is how many namespaces may fail before the rollout stops: a number, or a percentage of the selected
	// namespaces, rounded down. The default is 0. Failures before the rollout, and those that users of a namespace can
	// cause, are not counted, except labels that select overlays which do not fit together.
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 0 : self.matches('^([0-9]|[1-9][0-9]|100)%$')",message="must be at least 0, or a percentage from 0% to 100%"
	MaxFailures *intstr.IntOrString `json:"maxFailures,omitempty"`

	// revocation is when Roles and RoleBindings end that a change of the template takes away, and subjects and rules
	// that it removes from them. Immediate ends them in all namespaces at once, also while the rollout is paused or
	// stopped. WithRollout keeps them in a namespace until the rollout reaches it. To choose it requires the rights to
	// declare everything that the template and its earlier revisions in force declare.
	// The default is Immediate.
	// +optional
	Revocation Revocation `json:"revocation,omitempty"`
}

// Revocation is when grants end that a change of a template takes away.
// +kubebuilder:validation:Enum=Immediate;WithRollout
type Revocation string

// The values of Revocation.
const (
	RevokeImmediately Revocation = "Immediate"
	RevokeWithRollout Revocation = "WithRollout"
)

// KeepsRevoked reports whether namespaces keep grants that a change of the template takes away until its rollout
// reaches them. r may be nil.
func (r *Rollout) KeepsRevoked() bool {
	return r != nil && r.Revocation == RevokeWithRollout
}

// Wave is a part of the namespaces of a rollout.
type Wave struct {
	// selector selects the namespaces of the wave by their labels, for example {matchLabels: {tier: canary}}.
	// +required
	// +kubebuilder:validation:XValidation:rule="(!has(self.matchLabels) || size(self.matchLabels) <= 32) && (!has(self.matchExpressions) || size(self.matchExpressions) <= 32)",message="a selector has at most 32 matchLabels and 32 matchExpressions"
	Selector *metav1.LabelSelector `json:"selector"`

	// pauseSeconds is how long the rollout waits after the wave, in seconds.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=2592000
	PauseSeconds int32 `json:"pauseSeconds,omitempty"`
}

// NamespaceSelector selects namespaces.
type NamespaceSelector struct {
	// labelSelector selects namespaces by their labels, for example {matchLabels: {tier: production}}. The empty
	// selector {} selects every namespace.
	// +required
	LabelSelector *metav1.LabelSelector `json:"labelSelector"`
}

// Source is an object that is copied into namespaces, for example {apiVersion: v1, kind: Secret, namespace: registry,
// name: pull, as: registry-pull}. The copy has everything that the source has, except for its metadata and its status.
// Tokens in the source are not replaced. If the namespace of the source is itself selected, the source is left alone.
type Source struct {
	// apiVersion is that of the object, for example v1.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	APIVersion string `json:"apiVersion"`

	// kind is the kind of the object, for example Secret or ConfigMap. It must be namespaced, and not of the API group
	// rbac.authorization.k8s.io. A Secret with the type kubernetes.io/service-account-token is not copied.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Kind string `json:"kind"`

	// namespace is the namespace of the object. It must not contain tokens.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace"`

	// name is the name of the object. It must not contain tokens.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`

	// as is the name of the copy. By default, it has the name of the source. The tokens $(NAMESPACE) and $(CREATOR) are
	// replaced.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	As string `json:"as,omitempty"`

	// labels are those of the copy. The labels of the source are not copied. Tokens are replaced in values.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	Labels map[string]string `json:"labels,omitempty"`

	// annotations are those of the copy, for example {argocd.argoproj.io/sync-options: Prune=false}. The annotations of
	// the source are not copied, because they may address other controllers. Tokens are replaced in values.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	Annotations map[string]string `json:"annotations,omitempty"`

	// maxSize is the largest size of the content, as JSON, that is copied. A user who may change the source has it
	// written into every selected namespace. If the source is larger, the copies stay as they are, and namespaces
	// report that. The default is 64Ki, and the largest value is 1Mi.
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=16
	// +kubebuilder:validation:XValidation:rule="!string(self).matches('[eE][-+]?[0-9]{3}') && isQuantity(string(self)) && quantity(string(self)).isGreaterThan(quantity('0')) && !quantity(string(self)).isGreaterThan(quantity('1Mi'))",message="must be a quantity of at most 1Mi, such as 256Ki"
	MaxSize *resource.Quantity `json:"maxSize,omitempty"`
}

// DefaultMaxSourceSize is the default of the field maxSize of a Source, in bytes.
const DefaultMaxSourceSize = 64 << 10

// NamespaceMetadata are labels and annotations of Namespaces.
type NamespaceMetadata struct {
	// labels are set on the Namespace, for example {pod-security.kubernetes.io/enforce: restricted}.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	Labels map[string]string `json:"labels,omitempty"`

	// annotations are set on the Namespace, for example {example.com/contact: $(CREATOR)}.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	Annotations map[string]string `json:"annotations,omitempty"`
}

// Overlay is a kustomize layer that changes a template's objects in the namespaces that it selects.
type Overlay struct {
	// name identifies the overlay in its template, for example production.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`

	// namespaces selects the namespaces, among those of the template, in which the overlay applies. If the selector is
	// invalid, the template's condition Accepted is False.
	// +required
	// +kubebuilder:validation:XValidation:rule="(!has(self.labelSelector.matchLabels) || size(self.labelSelector.matchLabels) <= 32) && (!has(self.labelSelector.matchExpressions) || size(self.labelSelector.matchExpressions) <= 32)",message="a selector has at most 32 matchLabels and 32 matchExpressions"
	// +kubebuilder:validation:XValidation:rule="!has(self.labelSelector.matchExpressions) || [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31].map(i, i < size(self.labelSelector.matchExpressions) && has(self.labelSelector.matchExpressions[i].values) ? size(self.labelSelector.matchExpressions[i].values) : 0).sum() <= 1024",message="the matchExpressions of a selector have at most 1024 values together"
	Namespaces NamespaceSelector `json:"namespaces"`

	// patches change fields of objects. Each is a strategic merge patch or a JSON 6902 patch.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=128
	Patches []Patch `json:"patches,omitempty"`

	// labels are added to the metadata of every object, for example {tier: production}. They are not added to selectors
	// or pod templates.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	Labels map[string]string `json:"labels,omitempty"`

	// annotations are added to the metadata of every object.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	Annotations map[string]string `json:"annotations,omitempty"`

	// namespaceMetadata are labels and annotations of the Namespaces that the overlay selects, in addition to those of
	// the template. A value here replaces that of the template, for example {labels:
	// {pod-security.kubernetes.io/enforce: restricted}}.
	// +optional
	NamespaceMetadata *NamespaceMetadata `json:"namespaceMetadata,omitempty"`

	// images replaces names, tags or digests of container images.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=128
	Images []Image `json:"images,omitempty"`

	// replicas sets the number of replicas of workloads.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=128
	Replicas []Replica `json:"replicas,omitempty"`
}

// Patch is a kustomize patch.
type Patch struct {
	// patch is a strategic merge patch, such as {apiVersion: v1, kind: ResourceQuota, metadata: {name: budget}, spec:
	// {hard: {pods: "500"}}}, or a list of JSON 6902 operations, such as [{op: remove, path: /spec/hard/pods}]. It is a
	// string that contains YAML or JSON.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=262144
	Patch string `json:"patch"`

	// target selects the objects to patch. A list of JSON 6902 operations needs it. A strategic merge patch without
	// target changes the object whose kind and name it contains.
	// +optional
	Target *PatchTarget `json:"target,omitempty"`
}

// PatchTarget selects objects of a template. As in kustomize, group, version, kind and name are regular expressions
// that must match the whole value. A field that is not set matches every object.
type PatchTarget struct {
	// group is the API group of the objects, for example networking.k8s.io.
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	Group string `json:"group,omitempty"`
	// version is the API version of the objects, for example v1.
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	Version string `json:"version,omitempty"`
	// kind is the kind of the objects, for example LimitRange.
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	Kind string `json:"kind,omitempty"`
	// name is the name of the objects, for example defaults.
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	Name string `json:"name,omitempty"`
	// labelSelector selects objects by their labels in the template, for example app=web.
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	LabelSelector string `json:"labelSelector,omitempty"`
	// annotationSelector selects objects by their annotations in the template, for example layer=network.
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	AnnotationSelector string `json:"annotationSelector,omitempty"`
}

// Image replaces the name, tag or digest of a container image.
type Image struct {
	// name is the image to replace, without tag, for example registry.example.com/proxy.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Name string `json:"name"`
	// newName replaces the name. By default the name stays.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	NewName string `json:"newName,omitempty"`
	// newTag replaces the tag, for example v1.2.3. By default the tag stays.
	// +optional
	// +kubebuilder:validation:MaxLength=128
	NewTag string `json:"newTag,omitempty"`
	// digest replaces the tag by a digest, for example
	// sha256:24a0c4b4a4c0eb97a1aabb8e29f18e917d05abfe1b7a7c07857230879ce7d3d3.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Digest string `json:"digest,omitempty"`
}

// Replica sets the number of replicas of a workload.
type Replica struct {
	// name is the name of the workload.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// count is the number of replicas.
	// +required
	// +kubebuilder:validation:Minimum=0
	Count int64 `json:"count"`
}

// DriftPolicy is what happens when others change a populated object.
// +kubebuilder:validation:Enum=Correct;Report
type DriftPolicy string

const (
	// DriftCorrect restores what the template declares.
	DriftCorrect DriftPolicy = "Correct"
	// DriftReport leaves changed objects as they are and reports them.
	DriftReport DriftPolicy = "Report"
)

// FailurePolicy is what a failure means for its namespace.
// +kubebuilder:validation:Enum=Fail;Ignore
type FailurePolicy string

const (
	// FailureFail keeps the namespace from being Populated, or closed.
	FailureFail FailurePolicy = "Fail"
	// FailureIgnore only reports the failure.
	FailureIgnore FailurePolicy = "Ignore"
)

// DeletionPolicy is what happens to the objects of a template that no longer applies.
// +kubebuilder:validation:Enum=Orphan;Delete
type DeletionPolicy string

const (
	// DeletionOrphan leaves the objects as they are.
	DeletionOrphan DeletionPolicy = "Orphan"
	// DeletionDelete deletes the objects that the operator created.
	DeletionDelete DeletionPolicy = "Delete"
)

// AuthoritativePolicy is what happens to objects of authoritative kinds that no template declares.
// +kubebuilder:validation:Enum=Delete;Report
type AuthoritativePolicy string

const (
	// AuthoritativeDelete deletes the objects.
	AuthoritativeDelete AuthoritativePolicy = "Delete"
	// AuthoritativeReport leaves the objects and reports them.
	AuthoritativeReport AuthoritativePolicy = "Report"
)

// Conditions of a NamespaceTemplate. See also the conditions of every kind.
const (
	// TemplateAccepted reports whether the operator can use the template.
	TemplateAccepted = "Accepted"
	// TemplateValueNotProtected is the reason of Accepted=False if a template renders from a label or an annotation of
	// namespaces that no ClusterProtectedAttribute protects.
	TemplateValueNotProtected = "ValueNotProtected"
	// TemplatePopulated reports whether every selected namespace has the objects of the template.
	TemplatePopulated = "Populated"
)

// NamespaceTemplateStatus is what the operator observed.
type NamespaceTemplateStatus struct {
	// observedGeneration is the metadata.generation that this status describes.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// conditions contains Accepted: whether the template compiles and the operator may write the kinds that it
	// declares; Populated: whether every selected namespace has the objects of the newest revision; and Ready,
	// Reconciling and Stalled, as kstatus defines them for every kind. Wait for Ready with kubectl wait
	// --for=condition=Ready nstpl/NAME.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// namespaces counts the selected namespaces by their state.
	// +optional
	// +kubebuilder:default={}
	Namespaces NamespaceCounts `json:"namespaces,omitzero"`

	// kinds lists the kinds that were ever applied for this template. The operator looks for objects to delete among
	// them.
	// +optional
	// +listType=atomic
	Kinds []GroupKind `json:"kinds,omitempty"`

	// namespaceMetadata is true once the template declared labels or annotations of Namespaces. The operator looks for
	// those to remove.
	// +optional
	NamespaceMetadata bool `json:"namespaceMetadata,omitempty"`

	// failures lists the first ten reasons why objects could not be applied, each once.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=10
	Failures []ObjectFailure `json:"failures,omitempty"`

	// revisions are the revisions of the template that namespaces have, the newest first. While a change is rolled out,
	// a namespace has the first of them that has reached it. After the rollout, there is only one.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=8
	Revisions []TemplateRevision `json:"revisions,omitempty"`
}

// TemplateRevision is how far the rollout of a revision has come.
type TemplateRevision struct {
	// name is that of the ControllerRevision in the operator's namespace that contains the revision.
	Name string `json:"name"`
	// revision is the number of the revision, which increases with each change of the template.
	Revision int64 `json:"revision"`
	// generation is the metadata.generation of the template with this revision.
	Generation int64 `json:"generation"`
	// state is Progressing, Waiting between two waves, Paused, Stopped because namespaces failed, Superseded by a newer
	// revision, or Complete.
	State RolloutState `json:"state"`
	// startTime is when the rollout of the revision began.
	StartTime metav1.Time `json:"startTime"`
	// stopTime is when the rollout stopped because namespaces failed. Namespaces that were created since have the
	// newest revision that was rolled out completely.
	// +optional
	StopTime *metav1.Time `json:"stopTime,omitempty"`
	// waveTime is when the last namespace of the wave was populated, if the rollout waits before the next wave.
	// +optional
	WaveTime *metav1.Time `json:"waveTime,omitempty"`
	// wave is the number of complete waves.
	// +optional
	Wave int32 `json:"wave,omitempty"`
	// reach says which namespaces of the wave under way the revision has reached: those whose position is less. The
	// position of a namespace is a number between 0 and 4294967295 that the operator computes from its UID and the name
	// of the revision.
	// +optional
	Reach int64 `json:"reach,omitempty"`
	// failedBefore is the number of namespaces that failed already when the revision reached them. They do not stop the
	// rollout.
	// +optional
	FailedBefore int32 `json:"failedBefore,omitempty"`
	// restartedAt is the value of the annotation policy.nstpl.dev/restarted-at at which the rollout began.
	// +optional
	RestartedAt string `json:"restartedAt,omitempty"`
	// waves are the waves of the rollout, until it is complete.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	Waves []Wave `json:"waves,omitempty"`
}

// RolloutState is the state of the rollout of a revision.
// +kubebuilder:validation:Enum=Progressing;Waiting;Paused;Stopped;Superseded;Complete
type RolloutState string

// The states of a rollout.
const (
	RolloutProgressing RolloutState = "Progressing"
	RolloutWaiting     RolloutState = "Waiting"
	RolloutPaused      RolloutState = "Paused"
	RolloutStopped     RolloutState = "Stopped"
	RolloutSuperseded  RolloutState = "Superseded"
	RolloutComplete    RolloutState = "Complete"
)

// NamespaceCounts counts a template's namespaces by their state.
type NamespaceCounts struct {
	// matched counts the namespaces that the template selects and that are not opted out.
	// +optional
	// +kubebuilder:default=0
	Matched int32 `json:"matched"`
	// updated counts the namespaces that were populated with the newest revision, whether that succeeded or not.
	// +optional
	// +kubebuilder:default=0
	Updated int32 `json:"updated"`
	// populated counts the namespaces that have every object as declared.
	// +optional
	// +kubebuilder:default=0
	Populated int32 `json:"populated"`
	// failed counts the namespaces that lack an object because it could not be applied.
	// +optional
	// +kubebuilder:default=0
	Failed int32 `json:"failed"`
	// drifted counts the namespaces with an object that was changed and that driftPolicy Report leaves as it is, or
	// that another client changes again and again.
	// +optional
	// +kubebuilder:default=0
	Drifted int32 `json:"drifted"`
	// optedOut counts the namespaces that the template selects and that are opted out.
	// +optional
	// +kubebuilder:default=0
	OptedOut int32 `json:"optedOut"`
}

// GroupKind names a kind.
type GroupKind struct {
	// group is the API group, for example rbac.authorization.k8s.io. It is "" for the core group.
	// +kubebuilder:validation:MaxLength=253
	Group string `json:"group"`
	// kind is the kind, for example RoleBinding.
	// +kubebuilder:validation:MaxLength=63
	Kind string `json:"kind"`
}

// ObjectFailure reports why an object could not be applied in some namespaces.
type ObjectFailure struct {
	// namespaces are the first three namespaces that lack the object for this reason, in alphabetical order.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=3
	Namespaces []string `json:"namespaces"`
	// count is the number of namespaces that lack the object for this reason.
	Count int32 `json:"count"`
	// object is the resource and the name, as kubectl prints them, for example limitrange/defaults. It is empty if the
	// template as a whole failed.
	// +optional
	Object string `json:"object,omitempty"`
	// message is the reason, usually an error of the API server.
	Message string `json:"message"`
}
