package constraint

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/internal/webhook"
	"nstpl.dev/nstpl/operator/scc"
)

// parse returns the object in a YAML text.
func parse(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	object := &unstructured.Unstructured{}
	require.NoError(t, yaml.Unmarshal([]byte(text), &object.Object), text)
	return object
}

func parsePod(t *testing.T, text string) *corev1.Pod {
	t.Helper()
	pod, err := podOf(parse(t, text))
	require.NoError(t, err)
	return pod
}

// named returns a constraint that allows everything but privileged containers, unless changed.
func named(name string, change func(*v1alpha1.SecurityContextConstraints)) *v1alpha1.SecurityContextConstraints {
	c := &v1alpha1.SecurityContextConstraints{}
	c.Name = name
	c.RunAsUser.Type, c.SELinuxContext.Type = v1alpha1.RunAsAny, v1alpha1.RunAsAny
	if change != nil {
		change(c)
	}
	return scc.Defaulted(c)
}

// requestFor returns jane's request for the pod team-a/web.
func requestFor(operation admissionv1.Operation, subresource string, old, pod *unstructured.Unstructured,
) *webhook.Request {
	request := &webhook.Request{Object: pod, OldObject: old, Revision: webhook.OwnWebhook}
	request.Operation, request.SubResource = operation, subresource
	request.Namespace, request.Name = "team-a", "web"
	request.Resource.Resource, request.UserInfo.Username = "pods", "jane"
	return request
}

func TestModeOf(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		operation   admissionv1.Operation
		subresource string
		want        scc.Mode
	}{
		"a new pod":               {admissionv1.Create, "", scc.MayMutate},
		"an update":               {admissionv1.Update, "", scc.MayNotMutate},
		"a resize":                {admissionv1.Update, "resize", scc.MayNotMutate},
		"new ephemeral container": {admissionv1.Update, "ephemeralcontainers", scc.MayMutateEphemeralContainers},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pod := parse(t, `{spec: {volumes: [{name: a, holographic: {}}]}}`)
			review := mutationReview(requestFor(test.operation, test.subresource, nil, pod), &corev1.Pod{})
			require.Equal(t, test.want, review.Mode)
			require.NotEmpty(t, review.Unknown.Volumes)
		})
	}
}

func TestExemptRequests(t *testing.T) {
	t.Parallel()
	flags := Flags{ExemptNamespaces: []string{"kube-system", "storage"}}
	mirror := parse(t, `{metadata: {annotations: {kubernetes.io/config.mirror: x}}}`)
	plain := parse(t, `{}`)
	for name, test := range map[string]struct {
		namespace, group string
		object           *unstructured.Unstructured
		want             bool
	}{
		"an exempt namespace":           {"storage", "devs", plain, true},
		"another namespace":             {"team-a", "devs", plain, false},
		"a prefix of an exempt name":    {"stor", "devs", plain, false},
		"a mirror pod":                  {"team-a", "system:nodes", mirror, true},
		"a user who imitates one":       {"team-a", "devs", mirror, false},
		"another pod, from a kubelet":   {"team-a", "system:nodes", plain, false},
		"exec, which has no pod at all": {"team-a", "system:nodes", nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			request := requestFor(admissionv1.Create, "", nil, test.object)
			request.Namespace, request.UserInfo.Groups = test.namespace, []string{test.group}
			require.Equal(t, test.want, flags.isExempt(request))
			if test.want {
				admission := &Admission{flags: flags} // without constraints, grants or clients
				require.NoError(t, admission.Mutate(t.Context(), request))
				require.NoError(t, admission.Validate(t.Context(), request))
			}
		})
	}
	t.Run("another plugin's webhook", func(t *testing.T) {
		t.Parallel()
		request := requestFor(admissionv1.Create, "", nil, plain)
		request.Revision = ""
		require.NoError(t, (&Admission{}).Validate(t.Context(), request), "Mutate may not have been called")
	})
}

func TestRequiredConstraintCannotBeChanged(t *testing.T) {
	t.Parallel()
	none, first, second := parse(t, `{}`),
		parse(t, `{metadata: {annotations: {`+v1alpha1.RequiredSCCAnnotation+`: first}}}`),
		parse(t, `{metadata: {annotations: {`+v1alpha1.RequiredSCCAnnotation+`: second}}}`)
	for name, test := range map[string]struct {
		subresource string
		old, pod    *unstructured.Unstructured
		denied      bool
	}{
		"a new pod":                         {"", nil, first, false},
		"the same":                          {"", first, first, false},
		"another":                           {"", first, second, true},
		"one more":                          {"", none, first, true},
		"one less":                          {"", first, none, true},
		"a subresource that ignores it":     {"resize", first, second, false},
		"neither":                           {"", none, none, false},
		"ephemeral containers, unchanged":   {"ephemeralcontainers", first, first, false},
		"ephemeral containers that drop it": {"ephemeralcontainers", first, none, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := denyOtherRequirement(requestFor(admissionv1.Update, test.subresource, test.old, test.pod))
			if !test.denied {
				require.NoError(t, err)
				return
			}
			require.ErrorAs(t, err, new(*webhook.Denied))
			require.ErrorContains(t, err, "pod team-a/web: the annotation "+v1alpha1.RequiredSCCAnnotation)
		})
	}
}

// What Validate decides about a pod, with the constraints strict and open, in this order, and the annotations that
// Mutate has recorded.
func TestDecide(t *testing.T) {
	t.Parallel()
	strict := named("strict", func(c *v1alpha1.SecurityContextConstraints) {
		c.ReadOnlyRootFilesystem = true
	})
	open := named("open", nil)
	privileged := named("privileged", func(c *v1alpha1.SecurityContextConstraints) {
		c.AllowPrivilegedContainer = true
	})
	const (
		writable = `spec: {containers: [{name: a, image: a}]}}`
		readOnly = `spec: {containers: [{name: a, image: a, securityContext: {readOnlyRootFilesystem: true}}]}}`
		asRoot   = `spec: {containers: [{name: a, image: a, securityContext: {privileged: true}}]}}`
	)
	recorded := func(constraint, subject, required string) string {
		return `{metadata: {annotations: {` + v1alpha1.SCCAnnotation + `: "` + constraint + `", ` +
			v1alpha1.SCCSubjectAnnotation + `: "` + subject + `", ` + v1alpha1.RequiredSCCAnnotation + `: "` +
			required +
			`"}}, `
	}
	for name, test := range map[string]struct {
		pod         string
		subresource string
		usable      []string
		// isInitializing says that the namespace is being initialized.
		isInitializing bool
		denied         string
		deferred       string
	}{
		"the recorded constraint allows it": {
			pod: recorded("open", scc.UserSubject, "") + writable, usable: []string{"strict", "open"},
		},
		"the recorded constraint is tried first": {
			pod: recorded("open", scc.UserSubject, "") + readOnly, usable: []string{"strict", "open"},
		},
		"the recorded constraint may not be used any more": {
			pod: recorded("open", scc.UserSubject, "") + readOnly, usable: []string{"strict"},
			deferred: `is allowed by SecurityContextConstraints strict, but its annotation ` + v1alpha1.SCCAnnotation +
				` is "open"`,
		},
		"another subject is recorded": {
			pod: recorded("open", scc.ServiceAccountSubject, "") + writable, usable: []string{"open"},
			deferred: "repeat the request",
		},
		"no constraint is recorded": {
			pod: recorded("", "", "") + writable, usable: []string{"open"}, deferred: `is ""`,
		},
		"a subresource cannot record": {
			pod: recorded("", "", "") + writable, subresource: "ephemeralcontainers", usable: []string{"open"},
		},
		"no constraint may be used": {
			pod:    recorded("open", scc.UserSubject, "") + writable,
			denied: `pod team-a/web: no SecurityContextConstraints admit it for user "jane" or its service account:`,
		},
		"no constraint may be used, before the namespace was initialized": {
			pod: recorded("", "", "") + writable, deferred: "so its namespace has just been initialized",
		},
		"no constraint may be used by an initializer": {
			pod: recorded("", "", "") + writable, isInitializing: true, denied: "no SecurityContextConstraints admit it",
		},
		"no constraint allows it": {
			pod: recorded("open", scc.UserSubject, "") + asRoot, usable: []string{"strict", "open"},
			denied: "- constraint open: ",
		},
		"a webhook that ran later changed the pod": {
			pod: recorded("strict", scc.UserSubject, "") + writable, usable: []string{"strict"},
			denied: "- constraint strict: ",
		},
		"the required constraint allows it": {
			pod: recorded("open", scc.UserSubject, "open") + writable, usable: []string{"strict", "open"},
		},
		"the required constraint does not allow it": {
			pod: recorded("open", scc.UserSubject, "strict") + writable, usable: []string{"strict", "open"},
			denied: "- constraint strict: ",
		},
		"the required constraint may not be used": {
			pod: recorded("privileged", scc.UserSubject, "privileged") + writable, usable: []string{"open"},
			denied: "- constraint privileged: not usable",
		},
		"the required constraint does not exist": {
			pod: recorded("open", scc.UserSubject, "absent") + writable, usable: []string{"open"},
			denied: "- constraint absent: ",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			object := parse(t, test.pod)
			request := requestFor(admissionv1.Create, test.subresource, nil, object)
			pod := parsePod(t, test.pod)
			review := validationReview(request, pod)
			require.Equal(t, scc.MayNotMutate, review.Mode)
			review.Constraints = []*v1alpha1.SecurityContextConstraints{strict, open, privileged}
			review.Usable = func(c *v1alpha1.SecurityContextConstraints, _ string) bool {
				return slices.Contains(test.usable, c.Name)
			}
			verdict := scc.Review(review)
			err := decide(request, pod, &verdict, test.isInitializing)
			switch {
			case test.denied != "":
				require.ErrorAs(t, err, new(*webhook.Denied))
				require.ErrorContains(t, err, test.denied)
			case test.deferred != "":
				require.ErrorAs(t, err, new(*webhook.Deferred))
				require.ErrorContains(t, err, test.deferred)
			default:
				require.NoError(t, err)
			}
		})
	}
}

// The service account may use the constraint privileged, and jane may use the constraint open.
func TestConnectIsDecidedByTheRightsOfTheCaller(t *testing.T) {
	t.Parallel()
	constraints := []*v1alpha1.SecurityContextConstraints{
		named("open", nil), named("privileged", func(c *v1alpha1.SecurityContextConstraints) {
			c.AllowPrivilegedContainer = true
		}),
	}
	const (
		plain  = `{spec: {serviceAccountName: robot, containers: [{name: a, image: a}]}}`
		asRoot = `{spec: {serviceAccountName: robot, containers: [{name: a, image: a, securityContext: {privileged: true}}]}}`
	)
	for name, test := range map[string]struct {
		pod         string
		callerOnly  bool
		subresource string
		denied      bool
	}{
		"a pod that jane may create":                           {plain, false, "exec", false},
		"a pod that jane may create, caller only":              {plain, true, "exec", false},
		"a pod that its service account may create":            {asRoot, false, "exec", false},
		"a pod that only its service account may create":       {asRoot, true, "exec", true},
		"attach to a pod only its service account may create":  {asRoot, true, "attach", true},
		"attach to a pod that jane may create, caller's right": {plain, true, "attach", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pod := parsePod(t, test.pod)
			flags := Flags{CallerGuardsExec: test.callerOnly}
			review := flags.connectReview(pod, parse(t, test.pod))
			require.Equal(t, scc.MayMutate, review.Mode)
			require.Equal(t, "robot", pod.Spec.ServiceAccountName, "the pod is not changed")
			review.Constraints = constraints
			review.Usable = func(c *v1alpha1.SecurityContextConstraints, subject string) bool {
				return (c.Name == "open") == (subject == scc.UserSubject)
			}
			verdict := scc.Review(review)
			err := flags.decideConnect(requestFor(admissionv1.Connect, test.subresource, nil, nil), &verdict)
			if !test.denied {
				require.NoError(t, err)
				return
			}
			require.ErrorAs(t, err, new(*webhook.Denied))
			require.EqualError(t, err, test.subresource+" is not allowed because the pod's security context exceeds "+
				"your permissions: pod team-a/web: no SecurityContextConstraints admit it for user \"jane\":\n"+
				"- constraint open: spec.containers[0].securityContext.privileged: "+
				"privileged containers are not allowed\n"+
				"- constraint privileged: not usable by user (nstpl:constraint-denied)")
		})
	}
}

func TestPatchPodKeepsUnknownFields(t *testing.T) {
	t.Parallel()
	const text = `{metadata: {annotations: {` + v1alpha1.SCCAnnotation + `: forged}}, spec: {
		future: kept, containers: [{name: a, image: a, securityContext: {future: kept, runAsUser: 5}}]}}`
	for name, test := range map[string]struct {
		record bool
		want   map[string]string
	}{
		"a pod": {
			true, map[string]string{v1alpha1.SCCAnnotation: "open", v1alpha1.SCCSubjectAnnotation: "user"},
		},
		"a subresource": {false, map[string]string{v1alpha1.SCCAnnotation: "forged"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			object, before := parse(t, text), parsePod(t, text)
			after := before.DeepCopy()
			after.Spec.Containers[0].SecurityContext.RunAsNonRoot = new(true)
			verdict := &scc.Verdict{Constraint: "open", Subject: scc.UserSubject, Pod: after}
			require.NoError(t, patchPod(object, before, verdict, test.record))
			require.Equal(t, test.want, object.GetAnnotations())
			spec := object.Object["spec"].(map[string]any)
			require.Equal(t, "kept", spec["future"])
			container := spec["containers"].([]any)[0].(map[string]any)
			require.EqualValues(t, map[string]any{"future": "kept", "runAsUser": int64(5), "runAsNonRoot": true},
				container["securityContext"])
		})
	}
}
