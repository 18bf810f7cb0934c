package policyspace

import (
	"context"
	"fmt"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	authorizationv1client "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/codes"
	"nstpl.dev/nstpl/operator/engine/schema"
	"nstpl.dev/nstpl/operator/internal/webhook"
)

// maxSuggestions is how many similar names are considered. Each costs up to two reviews.
const maxSuggestions = 3

// missingSpaces denies requests that name a policy space which does not exist. It catches typing errors, and protects
// nothing: a namespace whose policy space does not exist is held, or keeps what it has.
type missingSpaces struct {
	cached, live client.Reader
	reviews      authorizationv1client.SubjectAccessReviewInterface
}

// appliesInOwnOrder reports whether a request may name a policy space that is created later. Objects of a tree were
// checked together, and programs such as Flux apply all objects of a commit in an order of their own.
func appliesInOwnOrder(request *webhook.Request, object *unstructured.Unstructured) bool {
	return isOfTree(object) || isByServiceAccount(request)
}

func isOfTree(object *unstructured.Unstructured) bool {
	return object.GetLabels()[v1alpha1.TreeLabel] != ""
}

func isByServiceAccount(request *webhook.Request) bool {
	return strings.HasPrefix(request.UserInfo.Username, serviceaccount.ServiceAccountUsernamePrefix)
}

// check returns a denial if a policy space does not exist.
func (m *missingSpaces) check(ctx context.Context, request *webhook.Request, space string) error {
	for _, reader := range []client.Reader{m.cached, m.live} {
		if found, err := getSpace(ctx, reader, space); err != nil || found != nil {
			return err
		}
	}
	remedy := "create it first"
	// A suggestion that fails does not let the request pass.
	if similar, err := m.similar(ctx, request, space); err == nil && similar != "" {
		remedy = fmt.Sprintf("did you mean %q?", similar)
	}
	return webhook.Deny(codes.PolicySpaceNotFound, fmt.Sprintf("policyspace %q not found: %s", space, remedy))
}

// similar returns the most similar name of a policy space that the requester may use or get, or "". Users must not
// learn the names of other policy spaces by trying.
func (m *missingSpaces) similar(ctx context.Context, request *webhook.Request, space string) (string, error) {
	list := &v1alpha1.PolicySpaceList{}
	if err := m.cached.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		return "", err
	}
	names := make([]string, 0, len(list.Items))
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	for range maxSuggestions {
		name := schema.Closest(space, names)
		if name == "" {
			return "", nil
		}
		for _, verb := range []string{v1alpha1.VerbUse, "get"} {
			allowed, err := webhook.IsAllowed(ctx, m.reviews, request.UserInfo, authorizationv1.ResourceAttributes{
				Verb: verb, Group: v1alpha1.PolicySpaces.Group, Version: "*", Resource: v1alpha1.PolicySpaces.Resource,
				Name: name,
			})
			if err != nil || allowed {
				return name, err
			}
		}
		names = slices.DeleteFunc(names, func(n string) bool { return n == name })
	}
	return "", nil
}
