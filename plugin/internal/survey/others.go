package survey

import (
	"context"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"nstpl.dev/nstpl/operator/engine/populate"
	"nstpl.dev/nstpl/plugin/internal/cluster"
)

// observeOthers looks for what others have by the names of objects that seem to be missing: the operator would take it over. It
// carries no template's label, and is asked for only where something is missing.
func (s *Survey) observeOthers(ctx context.Context, c *cluster.Cluster, authoritative []schema.GroupKind) error {
	type place struct {
		namespace string
		id        populate.ObjectID
	}
	missing := map[place]bool{}
	var questions []question
	for ns := range s.Namespaces() {
		for _, change := range ns.Changes {
			kind := change.Kind.GroupKind()
			if change.Action != populate.Create || change.Observed != nil || ns.Namespace.UID == "" || slices.Contains(authoritative, kind) {
				continue
			}
			missing[place{ns.Namespace.Name, change.ID()}] = true
			q := question{kind, ns.Namespace.Name, populate.Unlabelled}
			if s.scope.Everywhere {
				q.place = metav1.NamespaceAll
			}
			if !slices.Contains(questions, q) {
				questions = append(questions, q)
			}
		}
	}
	for _, a := range ask(ctx, c, questions) {
		if a.err != nil {
			return fmt.Errorf("list %s: %w", a.kind, a.err)
		}
		for namespace, objects := range a.found {
			for _, object := range objects {
				if missing[place{namespace, populate.ObjectID{GroupKind: a.kind, Name: object.Name}}] {
					s.others[namespace] = append(s.others[namespace], object)
				}
			}
		}
	}
	return nil
}
