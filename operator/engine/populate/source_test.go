package populate

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/attributes"
	"nstpl.dev/nstpl/operator/engine/match"
	"nstpl.dev/nstpl/operator/engine/render"
)

var pullRef = render.SourceRef{
	GroupVersionKind: schema.GroupVersionKind{Version: "v1", Kind: "Secret"}, Namespace: "registry", Name: "pull",
}

// pullSecret returns the source pullRef with a value.
func pullSecret(value string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Secret", "type": "Opaque", "immutable": true,
		"metadata": map[string]any{
			"name": "pull", "namespace": "registry", "resourceVersion": "7", "uid": "u",
			"labels": map[string]any{"own": "label"}, "annotations": map[string]any{"own": "annotation"},
			"ownerReferences": []any{}, "finalizers": []any{"a/b"},
		},
		"data": map[string]any{"token": value},
	}}
}

// copying returns a template that copies pullRef.
func copying(t testing.TB, change ...func(*v1alpha1.NamespaceTemplateSpec)) *v1alpha1.NamespaceTemplate {
	t.Helper()
	template := templateOf(t, "copies")
	template.Spec.Sources = []v1alpha1.Source{{APIVersion: "v1", Kind: "Secret", Namespace: "registry", Name: "pull"}}
	template.Status.Kinds = []v1alpha1.GroupKind{{Kind: "Secret"}}
	for _, apply := range change {
		apply(&template.Spec)
	}
	return template
}

func always(source Source) Sources { return func(render.SourceRef) Source { return source } }

func declareFrom(source Source, ns *corev1.Namespace, templates ...*v1alpha1.NamespaceTemplate) Declared {
	return Declare(render.NewCache(), ns, templates, Inputs{Sources: always(source)})
}

func TestCopiesHaveTheContentOfTheirSource(t *testing.T) {
	first := declareFrom(NewSource(pullRef, pullSecret("JChOQU1FU1BBQ0Up")), teamA(), copying(t)).Objects
	require.Len(t, first, 1)
	require.Equal(t, map[string]any{
		"apiVersion": "v1", "kind": "Secret", "type": "Opaque", "immutable": true,
		"metadata": map[string]any{
			"name": "pull", "namespace": "team-a", "labels": map[string]any{v1alpha1.TemplateNameLabel: "copies"},
			"annotations": map[string]any{v1alpha1.CopyOfAnnotation: "registry/pull"},
		},
		"data": map[string]any{"token": "JChOQU1FU1BBQ0Up"},
	}, first[0].Object)
	second := declareFrom(NewSource(pullRef, pullSecret("Yg==")), teamA(), copying(t)).Objects
	require.NotEqual(t, first[0].Hash, second[0].Hash)
	other := teamA()
	other.Name = "team-b"
	require.Equal(t, second[0].Hash, declareFrom(NewSource(pullRef, pullSecret("Yg==")), other, copying(t)).Objects[0].Hash)
}

func TestASourceIsNotOverwritten(t *testing.T) {
	registry := teamA()
	registry.Name = "registry"
	renamed := copying(t, func(spec *v1alpha1.NamespaceTemplateSpec) {
		other := v1alpha1.Source{APIVersion: "v1", Kind: "Secret", Namespace: "elsewhere", Name: "b", As: "pull"}
		spec.Sources[0].As = "copy"
		spec.Sources = append(spec.Sources, other)
	})
	source := NewSource(pullRef, pullSecret("YQ=="))
	require.Empty(t, declareFrom(source, registry, copying(t)).Objects)
	require.Equal(t, []string{"copies secret/copy"}, idsOf(declareFrom(source, registry, renamed).Objects))
	require.Len(t, declareFrom(source, teamA(), renamed).Objects, 2)
}

// A template allows the size of each of its sources by itself.
func TestTheMaxSizeOfASourceAllowsNoOtherToBeLarge(t *testing.T) {
	large := NewSource(pullRef, pullSecret(strings.Repeat("YWJj", 20<<10)))
	require.Greater(t, large.Size, v1alpha1.DefaultMaxSourceSize)
	for _, test := range []struct {
		namespace, name string
		isCopied        bool
	}{{"registry", "pull", true}, {"other", "pull", false}, {"registry", "other", false}} {
		template := copying(t, func(spec *v1alpha1.NamespaceTemplateSpec) {
			spec.Sources = append(spec.Sources, v1alpha1.Source{
				APIVersion: "v1", Kind: "Secret", Namespace: test.namespace, Name: test.name, As: "large",
				MaxSize: new(apiresource.MustParse("2Mi")),
			})
		})
		limited := large.limited(template, pullRef)
		require.Equal(t, test.isCopied, limited.Content != nil, test)
	}
}

// A template that is authoritative for the kind of a source deletes the others of its kind, and no source.
func TestASourceIsNotUndeclared(t *testing.T) {
	registry := teamA()
	registry.Name = "registry"
	authority := templateOf(t, "only-declared")
	authority.Spec.Authoritative = []v1alpha1.GroupKind{{Kind: "Secret"}, {Kind: "ConfigMap"}}
	var others []*metav1.PartialObjectMetadata
	for _, id := range []ObjectID{
		{GroupKind: secretKind, Name: "pull"}, {GroupKind: secretKind, Name: "other"},
		{GroupKind: schema.GroupKind{Kind: "ConfigMap"}, Name: "pull"},
	} {
		object := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "registry", Name: id.Name}}
		object.SetGroupVersionKind(id.WithVersion("v1"))
		others = append(others, object)
	}
	templates := []*v1alpha1.NamespaceTemplate{copying(t), authority}
	for namespace, deleted := range map[string][]string{
		"registry": {"secret/other", "configmap/pull"}, "elsewhere": {"secret/other", "configmap/pull", "secret/pull"},
	} {
		registry.Name = namespace
		declared := declareFrom(NewSource(pullRef, pullSecret("YQ==")), registry, templates...)
		declared.Objects = nil // the copy
		var got []string
		for _, change := range NewPlan(declared, match.NewIndex(templates...), Observed{Others: others}).Changes {
			require.Equal(t, Prune, change.Action, change.Reason)
			got = append(got, change.ID().String())
		}
		require.ElementsMatch(t, deleted, got)
	}
}

func TestObjectsThatAreNotCopied(t *testing.T) {
	token := pullSecret("YQ==")
	token.Object["type"] = string(corev1.SecretTypeServiceAccountToken)
	copied := pullSecret("YQ==")
	copied.SetAnnotations(map[string]string{v1alpha1.CopyOfAnnotation: "vault/original"})
	for want, object := range map[string]*unstructured.Unstructured{
		"the source secret/pull in namespace registry cannot be copied: it has the type kubernetes.io/service-account-token": token,
		"it is itself a copy: copy secret/original in namespace vault instead":                                               copied,
	} {
		source := NewSource(pullRef, object)
		require.Nil(t, source.Content)
		require.False(t, source.Lost)
		require.ErrorContains(t, source.Failure, want)
		require.NotContains(t, source.Failure.Error(), "YQ==")
	}
}

// A source is not copied if a rule of the cluster protects an attribute inside of it, whatever its value.
func TestSourcesWithProtectedAttributes(t *testing.T) {
	ref := render.SourceRef{
		GroupVersionKind: schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"},
		Namespace:        "registry", Name: "web",
	}
	withPodLabel := func(key string) Source {
		return NewSource(ref, &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "apps/v1", "kind": "Deployment",
			"metadata": map[string]any{"name": "web", "labels": map[string]any{"zone": "internal"}},
			"spec": map[string]any{"template": map[string]any{
				"metadata": map[string]any{"labels": map[string]any{key: "secret-value"}},
			}},
		}})
	}
	rules := func(err error, values ...string) func() (*attributes.Rules, error) {
		return func() (*attributes.Rules, error) {
			return attributes.NewRules([]v1alpha1.ClusterProtectedAttribute{{
				ObjectMeta: metav1.ObjectMeta{Name: "zones"},
				AttributeRule: v1alpha1.AttributeRule{
					AttributeKind: v1alpha1.LabelAttribute, AttributeName: "zone", ProtectedValues: values,
				},
			}}, []v1alpha1.ProtectedAttribute{{
				ObjectMeta:    metav1.ObjectMeta{Name: "apps", Namespace: "registry"},
				AttributeRule: v1alpha1.AttributeRule{AttributeKind: v1alpha1.LabelAttribute, AttributeName: "app"},
			}}), err
		}
	}
	for _, values := range [][]string{nil, {"another"}} {
		source := withPodLabel("zone").Guarded(ref, rules(nil, values...))
		require.Nil(t, source.Content)
		require.False(t, source.Lost)
		require.Equal(t, ReasonSourceProtected, source.Failure.Reason)
		require.EqualError(t, source.Failure, "the source deployment.apps/web in namespace registry cannot be copied: it has "+
			"the label zone in spec.template, which ClusterProtectedAttribute zones protects: remove it there, or declare "+
			"the object in spec.templates, as a user with the role")
	}
	require.NotNil(t, withPodLabel("app").Guarded(ref, rules(nil)).Content)
	unknown := withPodLabel("app").Guarded(ref, rules(errors.New("no answer")))
	require.Nil(t, unknown.Content)
	require.True(t, unknown.Failure.Transient())
	// Without templates inside, rules are not needed, and the labels of the source itself are not copied.
	require.NotNil(t, NewSource(pullRef, pullSecret("YQ==")).Guarded(pullRef, nil).Content)
	require.Nil(t, SourceNotFound(ref).Guarded(ref, nil).Content)
}

func TestPlanOfACopyWithoutItsSource(t *testing.T) {
	deletes := func(spec *v1alpha1.NamespaceTemplateSpec) { spec.DeletionPolicy = v1alpha1.DeletionDelete }
	ignores := func(spec *v1alpha1.NamespaceTemplateSpec) {
		deletes(spec)
		spec.FailurePolicy = v1alpha1.FailureIgnore
	}
	orphans := func(*v1alpha1.NamespaceTemplateSpec) {}
	secrets := schema.GroupResource{Resource: "secrets"}
	missing, delayed := SourceNotFound(pullRef), SourceDelayed(pullRef, time.Now())
	known := declareFrom(NewSource(pullRef, pullSecret("YQ==")), teamA(), copying(t)).Objects[0]
	adopted := with(applied(t, known), func(object *metav1.PartialObjectMetadata) {
		object.Annotations[v1alpha1.AdoptedAnnotation] = "true"
	})
	ofAnother := with(applied(t, known), func(object *metav1.PartialObjectMetadata) {
		object.Labels[v1alpha1.TemplateNameLabel] = "another"
	})
	for name, test := range map[string]struct {
		source   Source
		policy   func(*v1alpha1.NamespaceTemplateSpec)
		observed *metav1.PartialObjectMetadata
		want     Action
		severity Severity
		mayPass  bool
	}{
		"nothing exists":                  {missing, deletes, nil, Unknown, Error, false},
		"the copies remain":               {missing, orphans, applied(t, known), Unknown, Error, false},
		"the copies are deleted":          {missing, deletes, applied(t, known), Prune, Error, false},
		"an adopted object":               {missing, deletes, adopted, Unknown, Error, false},
		"an object of another client":     {missing, deletes, foreign("pull", "copies"), Unknown, Error, false},
		"a copy of another template":      {missing, deletes, ofAnother, Unknown, Error, false},
		"it waits to come back":           {delayed, orphans, applied(t, known), Unknown, Error, true},
		"its copies are still deleted":    {delayed, deletes, applied(t, known), Prune, Error, true},
		"failures are ignored":            {missing, ignores, applied(t, known), Prune, Warning, false},
		"the right was lost":              {SourceForbidden(pullRef, secrets), deletes, applied(t, known), Prune, Error, false},
		"the right may have been lost":    {SourceForbidden(pullRef, secrets).Unconfirmed(), deletes, applied(t, known), Unknown, Error, true},
		"it may have been replaced":       {missing.Unconfirmed(), deletes, applied(t, known), Unknown, Error, true},
		"the API server does not answer":  {SourceUnread(pullRef, errors.New("timeout")), deletes, applied(t, known), Unknown, Error, true},
		"the source became a token":       {unsuitable(pullRef, "a"), deletes, applied(t, known), Unknown, Error, false},
		"sources are not read (previews)": {Sources(nil).get(pullRef), deletes, applied(t, known), Unknown, Error, true},
	} {
		t.Run(name, func(t *testing.T) {
			template := copying(t, test.policy)
			var observed Observed
			if test.observed != nil {
				test.observed.SetGroupVersionKind(pullRef.GroupVersionKind)
				observed.Objects = []*metav1.PartialObjectMetadata{test.observed}
			}
			plan := NewPlan(declareFrom(test.source, teamA(), template), match.NewIndex(template), observed)
			// A rollout that has not reached the namespace keeps no copy, whatever it changes.
			plan = plan.Keeping(render.NewCache(), []*v1alpha1.NamespaceTemplate{template})
			require.Len(t, plan.Changes, 1)
			require.Equal(t, test.want, plan.Changes[0].Action)
			var result Result
			if test.want == Unknown {
				result.Outcomes = []Outcome{(&pass{}).apply(t.Context(), plan.Changes[0])}
			}
			findings := Findings(plan, result)
			require.Len(t, findings, 1)
			require.Equal(t, test.severity, findings[0].Severity)
			require.Equal(t, FindingFailed, findings[0].Reason)
			require.Equal(t, test.source.Failure.Error(), findings[0].Message)
			require.Equal(t, test.mayPass, findings[0].MayPass)
		})
	}
}

// A source that is missing for good does not keep the copies of another lost source.
func TestLostCopiesAreDeletedAlthoughOthersFail(t *testing.T) {
	prune := Change{Action: Prune, Kind: pullRef.GroupVersionKind, SourceLost: &Object{}}
	failed := Outcome{
		Change:  Change{Action: Unknown, Kind: pullRef.GroupVersionKind},
		Failure: SourceNotFound(pullRef).Failure,
	}
	require.Len(t, allowedPrunes([]Change{prune}, []Outcome{failed}), 1)
	prune.SourceLost = nil
	require.Empty(t, allowedPrunes([]Change{prune}, []Outcome{failed}))
}

func TestTheMessageAboutAMissingRightHasTheCommandsThatGrantIt(t *testing.T) {
	message := MissingSourceRight(pullRef, schema.GroupResource{Resource: "secrets"}).Error()
	require.Equal(t, `the operator may not get secrets "pull" in namespace registry: grant that with `+
		"'kubectl create role nstpl-source-pull -n registry --verb=get --resource=secrets --resource-name=pull' and "+
		"'kubectl create rolebinding nstpl-source-pull -n registry --role=nstpl-source-pull "+
		"--serviceaccount=nstpl-system:nstpl-operator'", message)
}

func TestOnlyCopiesOfDataAreReplacedWithoutAnAnnotation(t *testing.T) {
	copyOf := func(apiVersion, kind string) Change {
		object := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": apiVersion, "kind": kind, "metadata": map[string]any{
				"annotations": map[string]any{v1alpha1.CopyOfAnnotation: "a/b"},
			},
		}}
		return Change{Kind: object.GroupVersionKind(), Declared: &Object{Unstructured: object}}
	}
	ours := applied(t, declareFrom(NewSource(pullRef, pullSecret("YQ==")), teamA(), copying(t)).Objects[0])
	require.NoError(t, MayReplace(copyOf("v1", "Secret"), ours))
	require.NoError(t, MayReplace(copyOf("v1", "ConfigMap"), ours))
	require.ErrorContains(t, MayReplace(copyOf("v1", "PersistentVolumeClaim"), ours), v1alpha1.ReplaceAnnotation)
	require.ErrorContains(t, MayReplace(copyOf("v1", "Secret"), foreign("pull", "copies")), "existed before")
}

// Another client could otherwise keep a policy out of the namespace by an object that takes no change.
func TestWhatIsInTheWayOfAPolicyIsReplaced(t *testing.T) {
	policy := schema.GroupVersionKind{Group: "networking.k8s.io", Version: "v1", Kind: "NetworkPolicy"}
	theirs := foreign("deny", "")
	theirs.Labels = nil
	ours := applied(t, declare(teamA(), templateOf(t, "a", settings)).Objects[0])
	const unconfirmed = "annotate the template's object with " + v1alpha1.ReplaceAnnotation
	for name, c := range map[string]struct {
		kind     schema.GroupVersionKind
		change   Change
		existing metav1.Object
		want     string
	}{
		"a policy in place of the template's":    {policy, Change{Populated: true}, theirs, ""},
		"data in place of the template's":        {configMapKind, Change{Populated: true}, theirs, unconfirmed},
		"data that may be deleted":               {configMapKind, Change{Occupied: true}, theirs, ""},
		"data of the template, without an entry": {configMapKind, Change{Occupied: true}, ours, unconfirmed},
		"a policy of the template":               {policy, Change{Populated: true}, ours, unconfirmed},
		"a policy that existed before":           {policy, Change{}, theirs, "existed before"},
	} {
		c.change.Kind, c.change.Action = c.kind, Create
		c.change.Declared = &Object{Unstructured: &unstructured.Unstructured{Object: map[string]any{}}}
		if err := MayReplace(c.change, c.existing); c.want == "" {
			require.NoError(t, err, name)
		} else {
			require.ErrorContains(t, err, c.want, name)
		}
	}
}

// The items of a list are named by their content, which users who see the reason of a drift may not be allowed to read.
func TestTheReasonOfADriftQuotesNoValuesOfASource(t *testing.T) {
	account := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ServiceAccount", "metadata": map[string]any{"name": "robot"},
		"secrets": []any{map[string]any{"name": "hunter2"}, map[string]any{"name": "hunter3"}},
	}}
	template := copying(t, func(spec *v1alpha1.NamespaceTemplateSpec) { spec.Sources[0].Kind = "ServiceAccount" })
	source := NewSource(render.RefOf(&template.Spec.Sources[0]), account)
	declared := declareFrom(source, teamA(), template)
	removed := fieldpath.KeyByFields("name", "hunter2")
	observed := applied(t, declared.Objects[0], fieldpath.MakePathOrDie("secrets", removed),
		fieldpath.MakePathOrDie("secrets", removed, "name"))
	plan := NewPlan(declared, match.NewIndex(template), Observed{Objects: []*metav1.PartialObjectMetadata{observed}})
	require.Len(t, plan.Changes, 1)
	require.True(t, plan.Changes[0].Drifted)
	require.Equal(t, "secrets changed by kubectl-edit", plan.Changes[0].Reason)
}
