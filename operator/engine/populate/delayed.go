package populate

import (
	"fmt"
	"strings"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/render"
)

// delayBegins begins the sentences of DelayedSources, by which ReportedDelay finds them again.
const delayBegins = "changes of "

// DelayedSources returns a sentence for people about the sources of a template whose changes wait: their number, and
// the one that waits for the shortest time.
func DelayedSources(count int, first render.SourceRef, resume time.Time) string {
	until := resume.UTC().Format(time.RFC3339)
	if count == 1 {
		return fmt.Sprintf(delayBegins+"the source %s wait until %s, so that its copies do not fill etcd", first, until)
	}
	return fmt.Sprintf(delayBegins+"%d sources wait, so that their copies do not fill etcd: the first is %s, until %s",
		count, first, until)
}

// ReportedDelay returns the sentence of DelayedSources that the status of a template ends with, or "" if no change of a
// source waits for as long as that is reported.
func ReportedDelay(template *v1alpha1.NamespaceTemplate) string {
	populated := apimeta.FindStatusCondition(template.Status.Conditions, v1alpha1.TemplatePopulated)
	if populated == nil {
		return ""
	}
	if i := strings.LastIndex(populated.Message, "; "+delayBegins); i >= 0 {
		return populated.Message[i+len("; "):]
	}
	return ""
}
