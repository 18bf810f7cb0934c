package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// NamespaceTemplate declares the objects that every namespace it selects holds.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=nstpl
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Accepted",type=string,JSONPath=`.status.conditions[?(@.type=="Accepted")].status`
// +kubebuilder:printcolumn:name="Populated",type=string,JSONPath=`.status.conditions[?(@.type=="Populated")].status`
// +kubebuilder:printcolumn:name="Matched",type=integer,JSONPath=`.status.namespaces.matched`
// +kubebuilder:printcolumn:name="Failed",type=integer,JSONPath=`.status.namespaces.failed`
// +kubebuilder:printcolumn:name="Drifted",type=integer,JSONPath=`.status.namespaces.drifted`
// +kubebuilder:printcolumn:name="Drift-Policy",type=string,JSONPath=`.spec.driftPolicy`,priority=1
// +kubebuilder:printcolumn:name="Deletion-Policy",type=string,JSONPath=`.spec.deletionPolicy`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.metadata.name.size() <= 63",message="the name of a NamespaceTemplate is a label value on the objects it populates, so it has at most 63 characters"
type NamespaceTemplate struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +required
	Spec NamespaceTemplateSpec `json:"spec"`
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

// NamespaceTemplateSpec is what an administrator declares.
type NamespaceTemplateSpec struct {
	// namespaces selects the namespaces to populate.
	// +required
	// +kubebuilder:validation:XValidation:rule="!has(self.labelSelector.matchExpressions) || self.labelSelector.matchExpressions.all(e, e.operator in ['In', 'NotIn', 'Exists', 'DoesNotExist'])",message="an operator of matchExpressions is In, NotIn, Exists or DoesNotExist"
	// +kubebuilder:validation:XValidation:rule="!has(self.labelSelector.matchExpressions) || self.labelSelector.matchExpressions.all(e, (e.operator in ['In', 'NotIn']) == (has(e.values) && size(e.values) > 0))",message="In and NotIn need values, Exists and DoesNotExist take none"
	// +kubebuilder:validation:XValidation:rule="(!has(self.labelSelector.matchLabels) || size(self.labelSelector.matchLabels) <= 32) && (!has(self.labelSelector.matchExpressions) || size(self.labelSelector.matchExpressions) <= 32)",message="a selector has at most 32 matchLabels and 32 matchExpressions"
	// +kubebuilder:validation:XValidation:rule="!has(self.labelSelector.matchExpressions) || [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31].map(i, i < size(self.labelSelector.matchExpressions) && has(self.labelSelector.matchExpressions[i].values) ? size(self.labelSelector.matchExpressions[i].values) : 0).sum() <= 1024",message="the matchExpressions of a selector have at most 1024 values together"
	Namespaces NamespaceSelector `json:"namespaces"`

	// templates are the namespace-scoped objects to populate. $(NAMESPACE) and $(CREATOR) in string values stand for
	// the namespace's name and its creator; $$(NAMESPACE) is a literal $(NAMESPACE).
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=512
	// +kubebuilder:validation:items:XPreserveUnknownFields
	Templates []runtime.RawExtension `json:"templates,omitempty"`

	// overlays are kustomize layers for some of the namespaces, applied in this order.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=32
	Overlays []Overlay `json:"overlays,omitempty"`

	// driftPolicy says what happens when somebody else changes or deletes a populated object: Correct puts it right,
	// Report leaves it and reports it. A field that no template declares is nobody's drift.
	// +optional
	// +kubebuilder:default=Correct
	DriftPolicy DriftPolicy `json:"driftPolicy,omitempty"`

	// failurePolicy says whether an object that can't be applied keeps the namespace from being Populated.
	// +optional
	// +kubebuilder:default=Fail
	FailurePolicy FailurePolicy `json:"failurePolicy,omitempty"`

	// deletionPolicy says what happens to the objects when the template is deleted, is switched off or no longer
	// selects the namespace.
	// +optional
	// +kubebuilder:default=Orphan
	DeletionPolicy DeletionPolicy `json:"deletionPolicy,omitempty"`

	// authoritative are kinds of which the selected namespaces hold what templates declare, and nothing else: objects
	// that no template declares are deleted, whoever made them. What Kubernetes itself puts into every namespace stays.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	Authoritative []GroupKind `json:"authoritative,omitempty"`

	// authoritativePolicy says what happens to such objects: Delete, which is the default, deletes
	// them, Report leaves them and reports them.
	// +optional
	AuthoritativePolicy AuthoritativePolicy `json:"authoritativePolicy,omitempty"`
}

// NamespaceSelector selects namespaces.
type NamespaceSelector struct {
	// labelSelector selects namespaces by label; {} selects every namespace.
	// +required
	LabelSelector *metav1.LabelSelector `json:"labelSelector"`
}

// Overlay is a kustomize layer over a template's objects, for the namespaces it selects.
type Overlay struct {
	// name of the overlay, unique in its template.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`

	// namespaces selects, among the template's namespaces, those that get the overlay. A selector that can't be read
	// makes the condition Accepted false: rules for it in every overlay would exceed the API server's budget.
	// +required
	// +kubebuilder:validation:XValidation:rule="(!has(self.labelSelector.matchLabels) || size(self.labelSelector.matchLabels) <= 32) && (!has(self.labelSelector.matchExpressions) || size(self.labelSelector.matchExpressions) <= 32)",message="a selector has at most 32 matchLabels and 32 matchExpressions"
	// +kubebuilder:validation:XValidation:rule="!has(self.labelSelector.matchExpressions) || [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31].map(i, i < size(self.labelSelector.matchExpressions) && has(self.labelSelector.matchExpressions[i].values) ? size(self.labelSelector.matchExpressions[i].values) : 0).sum() <= 1024",message="the matchExpressions of a selector have at most 1024 values together"
	Namespaces NamespaceSelector `json:"namespaces"`

	// patches are strategic merge or JSON 6902 patches.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=128
	Patches []Patch `json:"patches,omitempty"`

	// labels are added to the metadata of every object, never to selectors or pod templates.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	Labels map[string]string `json:"labels,omitempty"`

	// annotations are added to the metadata of every object.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	Annotations map[string]string `json:"annotations,omitempty"`

	// images replaces names, tags or digests of images.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=128
	Images []Image `json:"images,omitempty"`

	// replicas replaces the replica counts of workloads.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=128
	Replicas []Replica `json:"replicas,omitempty"`
}

// Patch is a kustomize patch.
type Patch struct {
	// patch is a strategic merge patch or a list of JSON 6902 operations, as YAML or JSON.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=262144
	Patch string `json:"patch"`

	// target selects the objects to patch. A strategic merge patch without one patches the object it names.
	// +optional
	Target *PatchTarget `json:"target,omitempty"`
}

// PatchTarget selects objects of a template. Values are regular expressions that match as a whole, as in kustomize.
type PatchTarget struct {
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	Group string `json:"group,omitempty"`
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	Version string `json:"version,omitempty"`
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	Kind string `json:"kind,omitempty"`
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	Name string `json:"name,omitempty"`
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	LabelSelector string `json:"labelSelector,omitempty"`
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	AnnotationSelector string `json:"annotationSelector,omitempty"`
}

// Image replaces the name, tag or digest of an image.
type Image struct {
	// name of the image to replace, without tag.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Name string `json:"name"`
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	NewName string `json:"newName,omitempty"`
	// +optional
	// +kubebuilder:validation:MaxLength=128
	NewTag string `json:"newTag,omitempty"`
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Digest string `json:"digest,omitempty"`
}

// Replica sets the replica count of the workload with a name.
type Replica struct {
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// +required
	// +kubebuilder:validation:Minimum=0
	Count int64 `json:"count"`
}

// DriftPolicy says what happens to drift.
// +kubebuilder:validation:Enum=Correct;Report
type DriftPolicy string

const (
	// DriftCorrect applies drifted objects again.
	DriftCorrect DriftPolicy = "Correct"
	// DriftReport leaves drifted objects and reports them.
	DriftReport DriftPolicy = "Report"
)

// FailurePolicy says what an object that can't be applied means for its namespace.
// +kubebuilder:validation:Enum=Fail;Ignore
type FailurePolicy string

const (
	// FailureFail keeps the namespace from being Populated.
	FailureFail FailurePolicy = "Fail"
	// FailureIgnore reports the failure only.
	FailureIgnore FailurePolicy = "Ignore"
)

// DeletionPolicy says what happens to objects whose template goes.
// +kubebuilder:validation:Enum=Orphan;Delete
type DeletionPolicy string

const (
	// DeletionOrphan leaves them.
	DeletionOrphan DeletionPolicy = "Orphan"
	// DeletionDelete deletes them.
	DeletionDelete DeletionPolicy = "Delete"
)

// AuthoritativePolicy says what happens to objects of authoritative kinds that no template declares.
// +kubebuilder:validation:Enum=Delete;Report
type AuthoritativePolicy string

const (
	// AuthoritativeDelete deletes them.
	AuthoritativeDelete AuthoritativePolicy = "Delete"
	// AuthoritativeReport leaves and reports them.
	AuthoritativeReport AuthoritativePolicy = "Report"
)

// Conditions of a NamespaceTemplate.
const (
	// TemplateAccepted says whether the template compiles, and why not.
	TemplateAccepted = "Accepted"
	// TemplatePopulated says whether every namespace that it selects holds its objects.
	TemplatePopulated = "Populated"
)

// NamespaceTemplateStatus is what the operator saw.
type NamespaceTemplateStatus struct {
	// observedGeneration is the generation that this status is about.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// conditions are Accepted and Populated.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// namespaces counts the selected namespaces by what became of them.
	// +optional
	Namespaces NamespaceCounts `json:"namespaces,omitzero"`

	// kinds are the kinds ever applied for this template: where objects to prune are looked for.
	// +optional
	// +listType=atomic
	Kinds []GroupKind `json:"kinds,omitempty"`

	// failures are the first ten objects that could not be applied.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=10
	Failures []ObjectFailure `json:"failures,omitempty"`
}

// NamespaceCounts counts a template's namespaces.
type NamespaceCounts struct {
	// matched namespaces are selected by the template and not opted out.
	Matched int32 `json:"matched"`
	// populated namespaces hold every object as declared.
	Populated int32 `json:"populated"`
	// failed namespaces lack an object that could not be applied.
	Failed int32 `json:"failed"`
	// drifted namespaces hold an object that somebody changed and that driftPolicy Report leaves so.
	Drifted int32 `json:"drifted"`
	// optedOut namespaces are selected by the template but opted out.
	OptedOut int32 `json:"optedOut"`
}

// GroupKind names a kind.
type GroupKind struct {
	// +kubebuilder:validation:MaxLength=253
	Group string `json:"group"`
	// +kubebuilder:validation:MaxLength=63
	Kind string `json:"kind"`
}

// ObjectFailure says why an object is not in a namespace.
type ObjectFailure struct {
	Namespace string `json:"namespace"`
	// object is the resource and name, as kubectl prints it: configmap/limits.
	Object  string `json:"object"`
	Message string `json:"message"`
}
