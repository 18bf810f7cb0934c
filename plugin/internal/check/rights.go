package check

import (
	"maps"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/plugin/internal/cluster"
	"nstpl.dev/nstpl/plugin/internal/output"
)

// rightsToInstall returns what kubectl apply must be allowed to do to install objects, and nstpl's definitions.
func rightsToInstall(objects []*unstructured.Unstructured) []authorizationv1.ResourceAttributes {
	var requests []authorizationv1.ResourceAttributes
	for _, kind := range append(kindsOf(objects), definitionKind) {
		resource := resourceOf(kind)
		namespace := ""
		if slices.ContainsFunc(objects, func(object *unstructured.Unstructured) bool {
			return object.GroupVersionKind() == kind && object.GetNamespace() != ""
		}) {
			namespace = v1alpha1.OperatorNamespace
		}
		for _, verb := range []string{"get", "create", "patch"} {
			requests = append(requests, authorizationv1.ResourceAttributes{
				Namespace: namespace, Verb: verb, Group: resource.Group, Version: resource.Version,
				Resource: resource.Resource,
			})
		}
	}
	return requests
}

// checkRights checks whether the caller may install nstpl: create its objects, and grant what its roles grant.
func checkRights(b *before) []Result {
	j := judgement{check: "permissions"}
	missing := map[string][]string{} // the resources, by the verb
	for _, request := range rightsToInstall(b.needed()) {
		allowed := b.rights[request]
		if allowed.err != nil {
			return []Result{unread(j.check, "create selfsubjectaccessreviews", allowed.err)}
		}
		if !allowed.value {
			missing[request.Verb] = append(missing[request.Verb], request.Resource)
		}
	}
	var granting []string
	for object, err := range b.denied {
		if object.kind.Group == rbacv1.GroupName && isEscalation(err) {
			granting = append(granting, object.String())
		}
	}
	for _, verb := range slices.Sorted(maps.Keys(missing)) {
		j.report(Failure, "you may not "+verb+" "+output.FirstFew(missing[verb]), "let a cluster administrator install nstpl")
	}
	j.add(Failure, "you may not grant the permissions of the operator, which you do not have yourself", granting,
		"let a cluster administrator install nstpl, or ask for the verbs escalate and bind on clusterroles and roles")
	return j.orOK("you may install nstpl")
}

// isEscalation reports whether an error is that of a role or binding that grants more than the caller may grant.
func isEscalation(err error) bool {
	return apierrors.IsForbidden(err) && strings.Contains(err.Error(), "attempting to grant RBAC permissions")
}

// isAdmissionDenial reports whether an error is that of an admission webhook or an admission policy.
func isAdmissionDenial(err error) bool {
	return err != nil && (strings.Contains(err.Error(), "admission webhook") ||
		strings.Contains(err.Error(), "AdmissionPolicy") || strings.Contains(err.Error(), "failed calling webhook"))
}

// checkDryRuns checks whether other admission would reject the objects to install.
func checkDryRuns(b *before) []Result {
	j := judgement{check: "dry-run"}
	var denied []ref
	var untried []string
	var untriedErr error
	for object, err := range b.denied {
		switch {
		case isAdmissionDenial(err):
			denied = append(denied, object)
		case cluster.MayNotWrite(err), isEscalation(err): // admission has not answered
			untried, untriedErr = append(untried, resourceOf(object.kind).Resource), err
		}
	}
	slices.SortFunc(denied, compareRefs)
	for _, object := range denied[:min(len(denied), maxNamed)] {
		j.results = append(j.results, Result{
			Check: j.check, Status: Failure, Object: object.String(),
			Message: object.String() + " would be rejected: " + b.denied[object].Error(),
			Remedy:  "exempt the objects of nstpl from this webhook or policy",
		})
	}
	switch rest := len(denied) - maxNamed; {
	case rest > 0:
		j.report(Failure, output.Count(rest, "more object")+" would be rejected",
			"exempt the objects of nstpl from the webhooks and policies that reject them")
	case len(denied) == 0 && len(untried) > 0:
		j.results = append(j.results, unread(j.check, "create "+output.FirstFew(untried), untriedErr))
	case len(denied) == 0 && len(b.denied) > 0:
		j.report(OK, "no admission webhook or policy rejects the objects to install", "")
	}
	return j.results
}

// maxNamed is how many objects with the same problem have a result of their own.
const maxNamed = 3

// checkLeftovers checks whether objects exist that an installation would change, or that an earlier one left.
func checkLeftovers(b *before) []Result {
	const id = "existing-objects"
	var deleted, foreign, own []string
	errs := map[ref]error{}
	for object, found := range b.stored {
		switch {
		case apierrors.IsNotFound(found.err):
		case found.err != nil:
			errs[object] = found.err
		case found.value.GetDeletionTimestamp() != nil:
			deleted = append(deleted, object.String())
		case found.value.GetLabels()[partOfLabel] != partOf:
			foreign = append(foreign, object.String())
		default:
			own = append(own, object.String())
		}
	}
	j := unreadObjects(id, errs)
	j.add(Failure, "objects to install are being deleted", deleted,
		"wait until they are deleted: "+remedyOfDeletion(deleted))
	j.add(Warning, "an installation would change "+output.Count(len(foreign), "existing object")+" without the label "+
		partOfLabel+"="+partOf, foreign,
		"find out what created them, and rename or delete them if they are not part of nstpl")
	if !b.isInstalled {
		j.add(Warning, output.Count(len(own), "object")+" of an earlier or unfinished installation", own,
			"install nstpl to complete them, or delete them as docs/install.md says under Uninstall")
	}
	message := "no objects of an earlier installation exist"
	if len(own) > 0 {
		message = "nstpl is installed: the manifests change " + output.Count(len(own), "existing object")
	}
	return j.orOK(message)
}

// The label of all installed objects.
const (
	partOfLabel = "app.kubernetes.io/part-of"
	partOf      = "nstpl"
)

func remedyOfDeletion(deleted []string) string {
	for _, object := range deleted {
		if name, isNamespace := strings.CutPrefix(object, "namespace/"); isNamespace {
			return "'kubectl get namespace " + name + " -o yaml' shows what it waits for"
		}
	}
	return "docs/operations.md says what to do if a CustomResourceDefinition stays Terminating"
}
