package artifact

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/files"
)

// Artifact is the artifact that the status of an object offers.
type Artifact struct {
	// Source is the object, such as "GitRepository flux-system/policies".
	Source string
	// URL is where the artifact is, and Digest its digest, such as "sha256:1a2b3c".
	URL, Digest string
	// Revision is what the object calls the content, such as "main@sha1:1a2b3c".
	Revision string
	// Commit is the hash of the Git commit that determines the content of the artifact, or "".
	Commit string
	// NotReady is why the object is not ready, or "". Then the artifact is an older one, but it was valid.
	NotReady string
}

// Name returns the name of the content: the hash of the commit if that alone determines the content, or the digest of
// the artifact. So no two contents have the same name.
func (a *Artifact) Name() string {
	if a.Commit != "" {
		return a.Commit
	}
	return a.Digest
}

// String describes the artifact.
func (a *Artifact) String() string {
	return fmt.Sprintf("the artifact %s of %s", files.Printable(a.Revision, files.MaxText), a.Source)
}

// resources are the kinds of objects, with their resources.
var resources = map[string]string{
	"GitRepository": "gitrepositories", "OCIRepository": "ocirepositories", "Bucket": "buckets",
	"ExternalArtifact": "externalartifacts",
}

// resource returns the client for the object that a reference names.
func resource(objects dynamic.Interface, ref v1alpha1.ArtifactSource) (dynamic.ResourceInterface, error) {
	version, err := schema.ParseGroupVersion(ref.APIVersion)
	name, ok := resources[ref.Kind]
	if err != nil || !ok || version.Group != "source.toolkit.fluxcd.io" {
		return nil, files.Failf(files.InvalidConfiguration,
			"the kind %s of %s cannot be followed: use a GitRepository, "+
				"OCIRepository, Bucket or ExternalArtifact of source.toolkit.fluxcd.io/v1",
			files.Printable(ref.Kind, 63), files.Printable(ref.APIVersion, 63))
	}
	return objects.Resource(version.WithResource(name)).Namespace(ref.Namespace), nil
}

// describe returns the object that a reference names, for people.
func describe(ref v1alpha1.ArtifactSource) string {
	return fmt.Sprintf("%s %s/%s", ref.Kind, ref.Namespace, ref.Name)
}

// Find reads an object from the API server and returns its artifact. The error is a *files.Error if the object has
// none.
func Find(ctx context.Context, objects dynamic.Interface, ref v1alpha1.ArtifactSource) (*Artifact, error) {
	client, err := resource(objects, ref)
	if err != nil {
		return nil, err
	}
	object, err := client.Get(ctx, ref.Name, metav1.GetOptions{})
	switch {
	case isNotInstalled(err):
		return nil, files.Failf(files.NotFound, "the kind %s of %s is not installed: install the source controller of "+
			"Flux, or set spec.git", ref.Kind, ref.APIVersion).Because(err)
	case apierrors.IsNotFound(err):
		return nil, files.Failf(files.NotFound, "%s does not exist: create it, or change spec.sourceRef",
			describe(ref)).Because(err)
	case apierrors.IsForbidden(err):
		return nil, files.Failf(files.AccessDenied, "nstpl-sync cannot read %s: apply the ClusterRole nstpl-sync of "+
			"this release", describe(ref)).Because(err)
	case err != nil:
		return nil, fmt.Errorf("read %s: %w", describe(ref), err)
	}
	return of(object, ref)
}

// isNotInstalled reports whether an error means that the API server does not serve the kind.
func isNotInstalled(err error) bool {
	status, ok := errors.AsType[*apierrors.StatusError](err)
	return ok && apierrors.IsNotFound(err) && status.ErrStatus.Details != nil &&
		slices.ContainsFunc(status.ErrStatus.Details.Causes, func(cause metav1.StatusCause) bool {
			return cause.Type == metav1.CauseTypeUnexpectedServerResponse
		})
}

func of(object *unstructured.Unstructured, ref v1alpha1.ArtifactSource) (*Artifact, error) {
	offered, _, _ := unstructured.NestedMap(object.Object, "status", "artifact")
	a := &Artifact{
		Source: describe(ref), URL: text(offered, "url"), Digest: text(offered, "digest"),
		Revision: text(offered, "revision"), NotReady: notReady(object),
	}
	if a.URL == "" {
		why := "wait for Flux to store one"
		if a.NotReady != "" {
			why = a.NotReady
		}
		return nil, files.Failf(files.SourceNotReady, "%s has no artifact: %s", a.Source, why)
	}
	if err := checkURL(a); err != nil {
		return nil, err
	}
	if err := checkDigest(a); err != nil {
		return nil, err
	}
	if ref.Kind == "GitRepository" && !isShaped(object) {
		if parts := commitRevision.FindStringSubmatch(a.Revision); parts != nil {
			a.Commit = parts[1]
		}
	}
	return a, nil
}

// text returns a field that is a string, or "".
func text(fields map[string]any, name string) string {
	value, _ := fields[name].(string)
	return value
}

// commitRevision matches the revision of a GitRepository, such as main@sha1:1a2b3c.
var commitRevision = regexp.MustCompile(`^(?:[^\x00-\x20\x7f]{1,255}@)?sha1:([0-9a-f]{40})$`)

// shaping are the fields of the status of a GitRepository that say what besides the commit determined the content of
// the artifact. Flux writes them together with the artifact.
var shaping = []string{
	"observedIgnore", "observedInclude", "includedArtifacts", "observedSparseCheckout", "observedRecurseSubmodules",
}

// isShaped reports whether the artifact of a GitRepository is not its commit alone. Two artifacts with the same commit
// may then differ.
func isShaped(object *unstructured.Unstructured) bool {
	status, _, _ := unstructured.NestedMap(object.Object, "status")
	return slices.ContainsFunc(shaping, func(field string) bool {
		_, isSet := status[field]
		return isSet
	})
}

// notReady returns why the Ready condition of an object is False, or "".
func notReady(object *unstructured.Unstructured) string {
	conditions, _, _ := unstructured.NestedSlice(object.Object, "status", "conditions")
	for _, item := range conditions {
		condition, _ := item.(map[string]any)
		if text(condition, "type") == "Ready" && text(condition, "status") == string(metav1.ConditionFalse) {
			return fmt.Sprintf("its condition Ready is False: %s: %s", files.Printable(text(condition, "reason"), 63),
				files.Printable(text(condition, "message"), files.MaxText))
		}
	}
	return ""
}

// checkURL checks where an artifact is. It may be plain HTTP, as Flux serves it: the digest protects the content.
func checkURL(a *Artifact) error {
	u, err := url.Parse(a.URL)
	if err != nil || len(a.URL) > 2048 || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" ||
		u.User != nil || u.Fragment != "" {
		return files.Failf(files.InvalidConfiguration, "the URL of the artifact of %s is not valid: it must be "+
			"http://HOST/PATH or https://HOST/PATH, without credentials", a.Source).Because(err)
	}
	return nil
}
