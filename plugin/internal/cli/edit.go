package cli

import (
	"context"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Patch returns the fields to change in an object, without its metadata.uid and metadata.resourceVersion.
type Patch func(object *unstructured.Unstructured) (map[string]any, error)

// Edit is a command that changes an object of one of the cluster-scoped kinds of nstpl with a merge patch.
type Edit struct {
	Session
	resource  schema.GroupVersionResource
	operation string
	patch     Patch
	written   Written
	contexts  Contexts
}

// NewEdit adds the flag --output to a command that changes an object. The operation is what the command prints behind
// the name of the object, such as "paused".
func NewEdit(
	s Session, cmd *cobra.Command, resource schema.GroupVersionResource, operation string, patch Patch,
) *Edit {
	e := &Edit{Session: s, resource: resource, operation: operation, patch: patch}
	e.written.AddOutputFlag(cmd)
	return e
}

// AddContexts adds the flag --contexts to the command.
func (e *Edit) AddContexts(cmd *cobra.Command) { e.contexts.AddTo(cmd, e.Session) }

// Run changes the object with a name, in each cluster.
func (e *Edit) Run(cmd *cobra.Command, name string) error {
	if err := e.contexts.CheckOutput(cmd, &e.written); err != nil {
		return err
	}
	edited, failed := Split(e.Session, Ask(cmd.Context(), e.Session, e.contexts,
		func(ctx context.Context, in Source) (*unstructured.Unstructured, error) {
			return in.Cluster.Edit(ctx, e.resource, name, metav1.PatchOptions{FieldManager: FieldManager}, e.patch)
		}))
	if err := PrintWritten(e.Session, &e.written, e.operation, edited); err != nil {
		return err
	}
	return failed
}
