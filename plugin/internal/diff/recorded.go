package diff

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/populate"
	"nstpl.dev/nstpl/operator/engine/render"
	"nstpl.dev/nstpl/plugin/internal/cli"
	"nstpl.dev/nstpl/plugin/internal/cluster"
	"nstpl.dev/nstpl/plugin/internal/fields"
	"nstpl.dev/nstpl/plugin/internal/output"
	"nstpl.dev/nstpl/plugin/internal/survey"
)

// forbiddenTemplates is the error of the API server if the user may not list templates.
type forbiddenTemplates struct{ error }

func (e forbiddenTemplates) Unwrap() error { return e.error }

// writtenBy is the reason of an object whose declaration is unknown.
const writtenBy = "other clients wrote fields of it after the operator had applied it; without the template, it is " +
	"unknown whether it declares them"

// readRecorded returns the differences that the operator recorded, for a user who may not read templates: those that
// the Populated condition of a namespace reports, and those that the managedFields of populated objects show.
func (d *diff) readRecorded(ctx context.Context, c *cluster.Cluster, forbidden error) (*report, error) {
	if !d.files.IsEmpty() || d.removes() || d.verify {
		return nil, forbidden // these need the templates of the cluster
	}
	namespaces, readErrs, err := d.namespaces.ReadSome(ctx, c)
	switch {
	case err != nil:
		return nil, err
	case len(namespaces) == 0 && len(readErrs) > 0:
		return nil, cli.NoAccess(strings.Join(d.namespaces.Names, ", "))
	}
	return d.recorded(ctx, c, namespaces, readErrs)
}

func (d *diff) recorded(
	ctx context.Context, c *cluster.Cluster, namespaces []*corev1.Namespace, readErrs []error,
) (*report, error) {
	defer d.Progress("reading populated objects")()
	var unlisted []string
	report := newReport(slices.Values([]survey.Namespace(nil)), readErrs)
	for _, ns := range namespaces {
		populated, err := survey.ReadPopulated(ctx, c, ns.Name)
		if err != nil {
			return nil, err
		}
		unlisted = append(unlisted, populated.Unlisted...)
		report.Summary.Namespaces++
		if reason := survey.UnpopulatedReason(ns); reason != "" {
			report.NotPopulated = append(report.NotPopulated,
				notPopulated{Message: reason, Namespaces: []string{ns.Name}})
			continue
		}
		if unknown := unrecorded(ns); unknown != "" {
			report.lacksNamespace, report.Unknown = true, append(report.Unknown, unknown)
		}
		items := recordedItems(ns, populated)
		report.Summary.UnchangedObjects += max(0, len(populated.Objects)-len(items))
		report.Items = append(report.Items, slices.DeleteFunc(items, func(i *item) bool {
			return d.template != "" && i.Template != "" && i.Template != d.template
		})...)
	}
	report.isRecorded, report.lacksNamespace = true, report.lacksNamespace || len(readErrs) > 0
	report.Unknown = append(report.Unknown,
		cli.Unlisted("namespacetemplates", "only the differences that the operator recorded are known"))
	if len(unlisted) > 0 {
		report.Unknown = append(report.Unknown, fmt.Sprintf("you may not list %s", output.FirstFew(unlisted)))
	}
	report.summarize()
	return report, ctx.Err()
}

// unrecorded says why differences may be missing in the Populated condition of a namespace, or is empty.
func unrecorded(ns *corev1.Namespace) string {
	switch condition := populate.PopulatedCondition(ns); {
	case condition == nil:
		return fmt.Sprintf("the operator has not reported on namespace/%s: it is new, the operator is not running, or no "+
			"template selects it", ns.Name)
	case populate.IsShortened(condition):
		return fmt.Sprintf("the Populated condition of namespace/%s has no room for all findings", ns.Name)
	}
	return ""
}

// recordedItems returns the objects of a namespace that are not as declared according to what the operator recorded,
// and those of which that is unknown.
func recordedItems(ns *corev1.Namespace, populated survey.Populated) []*item {
	var items []*item
	condition := populate.PopulatedCondition(ns)
	reported := slices.DeleteFunc(populate.ReportedFindings(condition), func(r populate.Reported) bool {
		return r.Object == ""
	})
	if condition != nil && condition.Status == corev1.ConditionFalse && len(reported) == 0 {
		items = append(items, &item{
			Namespace: ns.Name, Object: "namespace/" + ns.Name,
			Ref:    output.NewObjectRef(namespaceKind, "", ns.Name),
			Action: actionUnknown, Different: true, Reason: condition.Reason + ": " + condition.Message,
		})
	}
	known := map[string]*metav1.PartialObjectMetadata{}
	for _, object := range populated.Objects {
		known[render.IDOf(object).String()] = object
	}
	for _, finding := range reported {
		object := known[finding.Object]
		isMissing := object == nil && finding.Object != "namespace/"+ns.Name &&
			(finding.Severity == populate.Error || len(populated.Unlisted) == 0)
		items = append(items, reportedItem(ns.Name, finding, object, isMissing))
		if finding.Reason != populate.FindingDeclaredTwice { // which does not say whether it differs
			delete(known, finding.Object)
		}
	}
	for _, object := range populated.Objects {
		if known[render.IDOf(object).String()] == nil {
			continue
		}
		if i := driftedItem(ns.Name, object); i != nil {
			// That it is declared twice is less than how it differs.
			items = slices.DeleteFunc(items, func(other *item) bool { return other.Object == i.Object })
			items = append(items, i)
		}
	}
	for _, i := range items {
		if i.Ref.Kind == "" {
			i.Ref = output.ParseObject(i.Object, ns.Name, populated.Kinds)
		}
	}
	return items
}

// reportedItem returns the item of an object that the Populated condition names. Object is nil if it is missing, if the
// user may not read it, or if it is the namespace itself.
func reportedItem(
	namespace string, finding populate.Reported, object *metav1.PartialObjectMetadata, isMissing bool,
) *item {
	i := &item{
		Namespace: namespace, Object: finding.Object, Template: finding.Template,
		// With these findings, the namespace has what the templates declare.
		Different: !slices.Contains([]string{
			populate.FindingLeftOut, populate.FindingDeclaredTwice, populate.FindingGrantStays,
		}, finding.Reason),
		Action: actionLeaveAlone, Reason: finding.Cause(), Drifted: finding.Reason == populate.FindingDrifted,
	}
	if object != nil {
		i.Template, i.Fields = object.Labels[v1alpha1.TemplateNameLabel], writtenFields(object)
	}
	switch {
	case finding.Reason == populate.FindingProtected:
		i.Action = actionKeep
	case isFailure(finding) && isMissing:
		i.Action, i.Fails = actionCreate, finding.Message
	case finding.Severity == populate.Error:
		i.Action, i.Fails = actionConfigure, finding.Message
	case isFailure(finding): // to apply it, with failurePolicy Ignore, or to delete it
		i.Action, i.Fails = actionUnknown, finding.Message
	}
	return i
}

// isFailure reports whether a finding is about a write that failed, which the operator tries again.
func isFailure(finding populate.Reported) bool {
	return finding.Severity == populate.Error || finding.Reason == populate.FindingFailed && !finding.IsAltered()
}

// driftedItem returns the item of an object whose managedFields show that it differs or may differ, or nil.
func driftedItem(namespace string, object *metav1.PartialObjectMetadata) *item {
	i := &item{
		Namespace: namespace, Object: render.IDOf(object).String(), Template: object.Labels[v1alpha1.TemplateNameLabel],
		Action: actionConfigure, Different: true, Drifted: true,
	}
	isApplied := slices.ContainsFunc(object.ManagedFields, func(entry metav1.ManagedFieldsEntry) bool {
		return populate.IsOwnEntry(&entry)
	})
	switch i.Fields = writtenFields(object); {
	case !isApplied && populate.Ours(object):
		i.Reason = "its managedFields were reset"
	case !isApplied:
		i.Action, i.Different, i.Drifted = actionLeaveAlone, false, false
		i.Reason = "has a template's label, but nstpl did not create it"
	case len(i.Fields) > 0:
		i.Action, i.Different, i.Drifted, i.Reason = actionUnknown, false, false, writtenBy
	default:
		return nil
	}
	return i
}

// writtenFields returns the fields that other clients wrote after the operator had applied an object.
func writtenFields(object *metav1.PartialObjectMetadata) []field {
	var written []field
	for _, owned := range fields.Since(object, v1alpha1.FieldManager) {
		path := owned.Path.String()
		written = append(written, field{Field: path, Manager: owned.Manager, text: path})
	}
	return written
}

// isForbiddenTemplates reports whether an error says that the user may not list templates.
func isForbiddenTemplates(err error) bool {
	_, is := errors.AsType[forbiddenTemplates](err)
	return is && apierrors.IsForbidden(err)
}
