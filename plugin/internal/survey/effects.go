package survey

import (
	"context"
	"iter"
	"slices"

	"nstpl.dev/nstpl/operator/engine/match"
	"nstpl.dev/nstpl/operator/engine/populate"
)

// Effects returns the namespaces with only those changes that the operator would not make with the templates of another
// index: the changes that follow from replacing the templates of before by those of the survey.
func (s *Survey) Effects(ctx context.Context, before *match.Index) iter.Seq[Namespace] {
	return func(yield func(Namespace) bool) {
		for ns := range s.Namespaces(ctx) {
			former := s.plan(ns.Declared.Namespace, before)
			ns.Changes = Except(ns.Changes, former.Changes)
			if !yield(ns) {
				return
			}
		}
	}
}

// Except returns the changes that are not among others.
func Except(changes, others []populate.Change) []populate.Change {
	return slices.DeleteFunc(slices.Clone(changes), func(change populate.Change) bool {
		return slices.ContainsFunc(others, func(other populate.Change) bool { return isSameChange(change, other) })
	})
}

func isSameChange(a, b populate.Change) bool {
	return a.ID() == b.ID() && a.Action == b.Action && a.Template == b.Template &&
		(a.Declared == nil) == (b.Declared == nil) && (a.Declared == nil || a.Declared.Hash == b.Declared.Hash) &&
		isSameMetadata(a.Metadata, b.Metadata)
}

// isSameMetadata reports whether two changes do the same with each label and annotation of a namespace. Both have the
// same declaration, which does not have the values that are removed.
func isSameMetadata(a, b *populate.MetadataChange) bool {
	if a == nil || b == nil {
		return a == b
	}
	return slices.EqualFunc(a.Values, b.Values, func(x, y populate.ValueChange) bool {
		return x.MetadataKey == y.MetadataKey && x.Action == y.Action && x.Template == y.Template
	})
}
