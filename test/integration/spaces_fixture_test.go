package integration_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/codes"
	"nstpl.dev/nstpl/operator/engine/hierarchy"
)

// spaceFixture creates PolicySpaces and namespaces in them, and waits until their usage is counted.
type spaceFixture struct{ templateFixture }

// createSpace creates a policyspace of the scope. Its quota has pairs of a resource and its limit.
func (s spaceFixture) createSpace(short, parent string, hard ...string) *v1alpha1.PolicySpace {
	s.t.Helper()
	space := s.newSpace(short, parent, hard...)
	require.NoError(s.t, s.client.Create(s.t.Context(), space))
	return space
}

// newSpace returns a policyspace, which is not created yet.
func (s spaceFixture) newSpace(short, parent string, hard ...string) *v1alpha1.PolicySpace {
	space := &v1alpha1.PolicySpace{ObjectMeta: metav1.ObjectMeta{Name: s.name(short)}}
	if parent != "" {
		space.Spec.Parent = s.name(parent)
	}
	if len(hard) > 0 {
		space.Spec.Quota = &v1alpha1.PolicySpaceQuota{Hard: resourceList(hard...)}
	}
	return space
}

// inSpace has a namespace belong to a policyspace of the scope.
func (s spaceFixture) inSpace(short string) func(*corev1.Namespace) {
	return withLabel(v1alpha1.PolicySpaceLabel, s.name(short))
}

// selectsSpace has a template select the namespaces of a policyspace and of its descendants, and delete its objects.
func (s spaceFixture) selectsSpace(short string) func(*v1alpha1.NamespaceTemplate) {
	return func(template *v1alpha1.NamespaceTemplate) {
		template.Spec.DeletionPolicy = v1alpha1.DeletionDelete
		template.Spec.Namespaces.LabelSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
			{Key: hierarchy.DepthLabel(s.name(short)), Operator: metav1.LabelSelectorOpExists},
		}}
	}
}

// createNamespaceInSpace creates a namespace in a policyspace. It returns when the namespace is initialized and its
// usage is counted.
func (s spaceFixture) createNamespaceInSpace(short, space string) string {
	s.t.Helper()
	ns := s.createNamespace(short, s.inSpace(space))
	s.waitInitialized(ns)
	s.waitSpaceStatus(space, func(c *assert.CollectT, status v1alpha1.PolicySpaceStatus) {
		assert.True(c, apimeta.IsStatusConditionTrue(status.Conditions, v1alpha1.PolicySpaceReady))
	})
	return ns.Name
}

// moveNamespace moves a namespace to a policyspace.
func (s spaceFixture) moveNamespace(namespace, space string) {
	s.t.Helper()
	s.patchNamespace(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}},
		fmt.Sprintf(`{"metadata": {"labels": {%q: %q}}}`, v1alpha1.PolicySpaceLabel, s.name(space)))
}

// waitInSpace waits until a namespace has the depth label of a policyspace.
func (s spaceFixture) waitInSpace(namespace, space string) {
	s.t.Helper()
	s.eventually(func(c *assert.CollectT) { assert.Contains(c, s.spaceDepths(c, namespace), space) })
}

// spaceDepths returns the values of the depth labels of a namespace, by the short names of policyspaces.
func (s spaceFixture) spaceDepths(c *assert.CollectT, namespace string) map[string]string {
	ns := &corev1.Namespace{}
	if !assert.NoError(c, s.client.Get(s.t.Context(), client.ObjectKey{Name: namespace}, ns)) {
		return nil
	}
	found := map[string]string{}
	for key, value := range hierarchy.OwnDepthLabels(ns) {
		found[strings.TrimPrefix(strings.TrimSuffix(key, v1alpha1.DepthLabelSuffix), s.name(""))] = value
	}
	return found
}

// waitSpaceStatus waits until the status of a policyspace is as expected.
func (s spaceFixture) waitSpaceStatus(short string, expect func(*assert.CollectT, v1alpha1.PolicySpaceStatus)) {
	s.t.Helper()
	s.eventually(func(c *assert.CollectT) {
		space := &v1alpha1.PolicySpace{}
		if assert.NoError(c, s.client.Get(s.t.Context(), client.ObjectKey{Name: s.name(short)}, space)) {
			expect(c, space.Status)
		}
	})
}

// waitUsage waits until the status of a policyspace has the usage and limits of a text, such as "pods: 1/2".
func (s spaceFixture) waitUsage(short, quota string) {
	s.t.Helper()
	s.waitSpaceStatus(short, func(c *assert.CollectT, status v1alpha1.PolicySpaceStatus) {
		assert.Equal(c, quota, status.Quota)
	})
}

// waitCounted waits until the API server has counted the usage of namespaces for the last time. A write during a count
// may fail with a conflict.
func (s spaceFixture) waitCounted(namespaces ...string) {
	s.t.Helper()
	s.eventually(func(c *assert.CollectT) {
		for _, ns := range namespaces {
			counter := &corev1.ResourceQuota{}
			if assert.NoError(c,
				s.client.Get(s.t.Context(), client.ObjectKey{Namespace: ns, Name: v1alpha1.QuotaName}, counter)) {
				assert.NotContains(c, counter.Spec.Hard, corev1.ResourceName(v1alpha1.RecountResource))
				assert.Len(c, counter.Status.Hard, len(counter.Spec.Hard))
				assert.Len(c, counter.Status.Used, len(counter.Spec.Hard))
			}
		}
	})
}

// getUsageQuota returns the ResourceQuota by which the API server counts the usage of a namespace.
func (s spaceFixture) getUsageQuota(ctx context.Context, namespace string) (*corev1.ResourceQuota, error) {
	counter := &corev1.ResourceQuota{}
	return counter, s.client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: v1alpha1.QuotaName}, counter)
}

// createWithRetries creates an object, and retries after errors that are not denials, as Kubernetes' own controllers
// do. If the answer to an earlier attempt was lost, the object may exist already, which counts as success.
func (s spaceFixture) createWithRetries(object client.Object, options ...client.CreateOption) error {
	isRetriable := func(err error) bool {
		return !apierrors.IsForbidden(err) || strings.Contains(err.Error(), "status unknown for quota")
	}
	backoff := wait.Backoff{Duration: 50 * time.Millisecond, Factor: 1.5, Jitter: 1, Steps: 15}
	tried := false
	return retry.OnError(backoff, isRetriable, func() error {
		created := object.DeepCopyObject().(client.Object)
		err := s.client.Create(context.WithoutCancel(s.t.Context()), created, options...)
		if tried && apierrors.IsAlreadyExists(err) {
			return nil
		}
		tried = true
		return err
	})
}

// expectQuotaExceeded fails unless a request was denied for exceeding the quota of a policyspace.
func (s spaceFixture) expectQuotaExceeded(err error, short, requested, limit string) {
	s.t.Helper()
	require.True(s.t, apierrors.IsForbidden(err), "%v", err)
	want := fmt.Sprintf("exceeded quota in policyspace %q, requested: %s, limit: %s, used: ", s.name(short), requested,
		limit)
	require.ErrorContains(s.t, err, want)
	require.True(s.t, strings.HasSuffix(err.Error(), codes.QuotaExceeded.AddTo("")), "%v", err)
}

// createLimitedSpace creates a policyspace, and returns when its limits on namespaces are enforced.
func (s spaceFixture) createLimitedSpace(space *v1alpha1.PolicySpace, change ...func(*v1alpha1.PolicySpace)) {
	s.t.Helper()
	for _, apply := range change {
		apply(space)
	}
	require.NoError(s.t, s.client.Create(s.t.Context(), space))
	s.eventually(func(c *assert.CollectT) {
		current := &v1alpha1.PolicySpace{}
		if assert.NoError(c, s.client.Get(s.t.Context(), client.ObjectKeyFromObject(space), current)) {
			assert.True(c, apimeta.IsStatusConditionTrue(current.Status.Conditions, v1alpha1.PolicySpaceReady))
			assert.Equal(c, current.Generation, current.Status.ObservedGeneration)
		}
	})
}

// createInSpace creates a namespace in a policyspace as a user. It tries again after errors that are not denials.
func (s spaceFixture) createInSpace(as client.Client, short, space string) error {
	isRetriable := func(err error) bool { return !apierrors.IsForbidden(err) }
	backoff := wait.Backoff{Duration: 50 * time.Millisecond, Factor: 1.5, Jitter: 1, Steps: 15}
	isFirst := true
	return retry.OnError(backoff, isRetriable, func() error {
		err := as.Create(context.WithoutCancel(s.t.Context()), s.newNamespace(short, s.inSpace(space)))
		if !isFirst && apierrors.IsAlreadyExists(err) {
			return nil // the answer to an earlier attempt was lost
		}
		isFirst = false
		return err
	})
}

// createInSpaceOnce creates a namespace in a policyspace as a user. It does not try again if it is asked to.
func (s spaceFixture) createInSpaceOnce(as kubernetes.Interface, short, space string) error {
	return as.CoreV1().RESTClient().Post().Resource("namespaces").Body(s.newNamespace(short, s.inSpace(space))).
		MaxRetries(0).Do(s.t.Context()).Error()
}

// countByCreator returns how many namespaces are in some policyspaces, in all and by creator.
func (s spaceFixture) countByCreator(spaces ...string) (total int, creators map[string]int) {
	s.t.Helper()
	creators = map[string]int{}
	for _, space := range spaces {
		list := &corev1.NamespaceList{}
		require.NoError(s.t, s.client.List(s.t.Context(), list,
			client.MatchingLabels{v1alpha1.PolicySpaceLabel: s.name(space)}))
		for i := range list.Items {
			total++
			creators[list.Items[i].Annotations[v1alpha1.CreatorAnnotation]]++
		}
	}
	return total, creators
}

// losesNamespaces has a webhook deny some namespaces after the operator has allowed them, and returns what makes it deny
// one.
func (s spaceFixture) losesNamespaces() func(*corev1.Namespace) {
	s.t.Helper()
	configuration := &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: s.name("denies")},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name:         "denies.example.com",
			ClientConfig: admissionregistrationv1.WebhookClientConfig{URL: new("https://127.0.0.1:1/nothing")},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
				Rule: admissionregistrationv1.Rule{
					APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"namespaces"},
				},
			}},
			ObjectSelector:          &metav1.LabelSelector{MatchLabels: map[string]string{"lost": "true"}},
			SideEffects:             new(admissionregistrationv1.SideEffectClassNone),
			AdmissionReviewVersions: []string{"v1"},
		}},
	}
	require.NoError(s.t, s.client.Create(s.t.Context(), configuration))
	s.t.Cleanup(func() { _ = s.client.Delete(context.Background(), configuration) })
	s.eventually(func(c *assert.CollectT) {
		err := s.client.Create(s.t.Context(), s.newNamespace("probe", withLabel("lost", "true")), client.DryRunAll)
		assert.ErrorContains(c, err, "denies.example.com")
	})
	return withLabel("lost", "true")
}

// sendForgedReview sends a review like the API server's, by which a namespace is about to use a number of pods in all.
// It returns whether the review is allowed, or the HTTP status of an answer that is not a review.
func (s spaceFixture) sendForgedReview(
	ctx context.Context, from *http.Client, counter *corev1.ResourceQuota, pods int,
) (allowed bool, status int, err error) {
	after := counter.DeepCopy()
	after.Status.Used = resourceList("pods", fmt.Sprint(pods))
	body := func(object *corev1.ResourceQuota) runtime.RawExtension {
		object.APIVersion, object.Kind = "v1", "ResourceQuota"
		data, _ := json.Marshal(object) // a ResourceQuota can always be encoded
		return runtime.RawExtension{Raw: data}
	}
	review := admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"},
		Request: &admissionv1.AdmissionRequest{
			UID: "forged", Kind: metav1.GroupVersionKind{Version: "v1", Kind: "ResourceQuota"},
			Resource:    metav1.GroupVersionResource{Version: "v1", Resource: "resourcequotas"},
			SubResource: "status", Name: counter.Name, Namespace: counter.Namespace, Operation: admissionv1.Update,
			UserInfo: authenticationv1.UserInfo{Username: "system:apiserver", Groups: []string{"system:masters"}},
			Object:   body(after), OldObject: body(counter.DeepCopy()),
		},
	}
	data, err := json.Marshal(review)
	if err != nil {
		return false, 0, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+s.webhookAddress+"/validate",
		bytes.NewReader(data))
	if err != nil {
		return false, 0, err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := from.Do(request)
	if err != nil {
		return false, 0, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return false, response.StatusCode, nil
	}
	answer := admissionv1.AdmissionReview{}
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		return false, 0, err
	}
	return answer.Response.Allowed, http.StatusOK, nil
}
