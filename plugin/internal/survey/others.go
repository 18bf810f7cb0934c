package survey

import (
	"context"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"nstpl.dev/nstpl/operator/engine/populate"
	"nstpl.dev/nstpl/plugin/internal/cluster"
)

// observeOthers lists objects without the label of a template that have the name of a missing declared object. The
// operator would adopt them. It sends no request if no object is missing. It skips authoritative kinds, since observe
// lists all of their objects.
func (s *Survey) observeOthers(ctx context.Context, c *cluster.Cluster, authoritative []schema.GroupKind) error {
	type key struct {
		namespace string
		id        populate.ObjectID
	}
	missing := map[key]bool{}
	var requests []listRequest
	settled := map[string]Namespace{}
	for ns := range s.Namespaces(ctx) {
		before := len(missing)
		for _, change := range ns.Changes {
			kind := change.Kind.GroupKind()
			if change.Action != populate.Create || change.Observed != nil || ns.Namespace.UID == "" ||
				slices.Contains(authoritative, kind) {
				continue
			}
			missing[key{ns.Namespace.Name, change.ID()}] = true
			request := listRequest{kind, ns.Namespace.Name, populate.Unlabelled}
			if s.scope.AllNamespaces {
				request.namespace = metav1.NamespaceAll
			}
			if !slices.Contains(requests, request) {
				requests = append(requests, request)
			}
		}
		if s.scope.OmitUnchanged && len(missing) == before {
			settled[ns.Namespace.Name] = ns
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	s.settled = settled
	for _, r := range list(ctx, c, requests) {
		if err := s.noteUnreadable(r); err != nil {
			return err
		}
		r.listed.Keep(func(namespace, name string) bool {
			return missing[key{namespace, populate.ObjectID{GroupKind: r.kind, Name: name}}]
		})
		s.others = append(s.others, r.listed)
	}
	return nil
}
