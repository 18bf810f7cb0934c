package diff

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/plugin/internal/cluster"
	"nstpl.dev/nstpl/plugin/internal/fields"
	"nstpl.dev/nstpl/plugin/internal/output"
	"nstpl.dev/nstpl/plugin/internal/survey"
)

// trial is a dry run for one or several objects: the same declaration for objects with the same content.
type trial struct {
	items []*item
	// sent is the item whose dry run is sent, and live its object in the cluster, which may be nil.
	sent *item
	live *unstructured.Unstructured
}

// resolve reads the objects that differ, and sends dry runs to get the fields that would change. Objects with the same
// content and the same declaration in several namespaces need one dry run, unless --full is set.
func (d *diff) resolve(ctx context.Context, c *cluster.Cluster, s *survey.Survey, r *report) error {
	trials, errs := d.trials(ctx, c, s, r)
	defer d.Progress("sending dry runs for " + output.Count(len(trials), "difference"))()
	errs = append(errs, cluster.Each(trials, func(t *trial) error { return t.run(ctx, c) })...)
	r.summarize()
	return errors.Join(errs...)
}

// trials reads the objects that differ, and returns the necessary dry runs.
func (d *diff) trials(
	ctx context.Context, c *cluster.Cluster, s *survey.Survey, r *report,
) (trials []*trial, errs []error) {
	defer d.Progress("reading objects that differ")()
	position := map[*item]int{}
	for n, i := range r.Items {
		position[i] = n
	}
	byKey := map[string]*trial{}
	add := func(i *item, live *unstructured.Unstructured) {
		key := i.trialKey(live)
		if d.full {
			key = i.fullKey()
		}
		if byKey[key] == nil {
			byKey[key] = &trial{}
			trials = append(trials, byKey[key])
		}
		t := byKey[key]
		t.items = append(t.items, i)
		if t.sent == nil || position[i] < position[t.sent] { // objects are read in any order
			t.sent, t.live = i, live
		}
	}
	var read []*item
	var targets []survey.Target
	for _, i := range r.differences() {
		if i.isRead() {
			read = append(read, i)
			targets = append(targets, survey.Target{Namespace: i.Namespace, Change: i.change})
		} else {
			add(i, nil)
		}
	}
	s.ReadLive(ctx, c, targets, func(n int, live *unstructured.Unstructured, err error) {
		switch i := read[n]; {
		case apierrors.IsForbidden(err):
			i.Estimate = err.Error()
		case err != nil:
			errs = append(errs, fmt.Errorf("%s: %s: %w", i.Namespace, i.Object, err))
		default:
			add(i, live)
		}
	})
	return trials, errs
}

// isRead reports whether the content of the object has to be read to compare it with its declaration.
func (i *item) isRead() bool { return i.change.Declared != nil && i.change.Observed != nil }

// trialKey returns a key that is the same for all objects whose dry runs have the same result.
func (i *item) trialKey(live *unstructured.Unstructured) string {
	parts := []string{i.Object, i.change.Kind.Version, i.Template, string(i.Action), fmt.Sprint(i.change.Occupied)}
	if i.change.Declared != nil {
		parts = append(parts, i.change.Declared.Hash)
	}
	if live != nil {
		parts = append(parts, contentHash(live))
	}
	return strings.Join(parts, "\x00")
}

// contentHash returns a hash of an object that does not depend on its namespace, its status and its times.
func contentHash(object *unstructured.Unstructured) string {
	content := survey.WithoutStatus(withoutServerFields(object))
	content.SetNamespace("")
	var entries []any
	for _, entry := range object.GetManagedFields() {
		owned := ""
		if entry.FieldsV1 != nil {
			owned = entry.FieldsV1.GetRawString()
		}
		entries = append(entries, []any{entry.Manager, entry.Operation, entry.Subresource, owned})
	}
	data, err := json.Marshal([]any{content.Object, entries})
	if err != nil {
		return string(object.GetUID()) // the object is not the same as any other
	}
	sum := sha256.Sum256(data)
	return string(sum[:])
}

// run sends the dry run, and stores its result in the items.
func (t *trial) run(ctx context.Context, c *cluster.Cluster) error {
	if t.sent.change.Declared == nil && t.sent.change.Metadata == nil {
		return nil
	}
	sides, err := survey.DryRunOn(ctx, c, t.sent.Namespace, t.sent.change, t.live)
	if err != nil {
		return fmt.Errorf("%s: %s: %w", t.sent.Namespace, t.sent.Object, err)
	}
	changed, err := changedFields(t.sent.Action, sides)
	if err != nil {
		return fmt.Errorf("%s: %s: %w", t.sent.Namespace, t.sent.Object, err)
	}
	for _, i := range t.items {
		i.sides, i.Fields, i.DryRunNamespace = sides, changed, t.sent.Namespace
		switch {
		case sides.Replaced:
			i.Action = actionReplace
		case sides.Fails() && i.Action.applies():
			i.Fails = refusal(sides)
		case sides.Refusal != nil:
			i.Estimate = "the dry run failed: " + refusal(sides)
		}
	}
	return nil
}

// changedFields returns the fields that differ between the two sides of an object, with masked Secrets. It returns none
// if the object is created or deleted. It returns the label and the annotations in which the operator keeps records
// only if nothing else differs, and not for an object that is adopted, which always gets them.
func changedFields(a action, sides survey.Sides) ([]field, error) {
	if sides.Live == nil || sides.Stored == nil {
		return nil, nil
	}
	changed, err := compareSides(sides.Live,
		survey.Sides{
			Live:   survey.Without(sides.Live, survey.Records...),
			Stored: survey.Without(sides.Stored, survey.Records...),
		})
	if err != nil || len(changed) > 0 || a == actionAdopt {
		return changed, err
	}
	return compareSides(sides.Live, sides)
}

func compareSides(live *unstructured.Unstructured, sides survey.Sides) ([]field, error) {
	from, to, err := displayed(sides)
	if err != nil {
		return nil, err
	}
	var changed []field
	for _, change := range fields.Compare(survey.WithoutStatus(from).Object, survey.WithoutStatus(to).Object) {
		changed = append(changed, newField(change, managerOf(live, change)))
	}
	return changed, nil
}

// managerOf returns the field managers that own a field, other than the operator if there are any.
func managerOf(live *unstructured.Unstructured, change fields.Change) string {
	managers := fields.Managers(live, change.Path)
	others := slices.DeleteFunc(slices.Clone(managers), func(name string) bool { return name == v1alpha1.FieldManager })
	if len(others) == 0 {
		others = managers
	}
	return strings.Join(others, ", ")
}

// conversion matches the begin of a message of server-side apply about an object that does not match its schema. This
// part names the namespace, so the messages about the same mistake differ.
var conversion = regexp.MustCompile(`^failed to (create typed patch object|convert new object) \([^)]*\)` +
	`( to proper version: unable to convert unstructured object to [^:]*)?: `)

// refusal returns why the API server rejected a dry run. It returns only the category of the error if the message
// contains a value of a Secret.
func refusal(sides survey.Sides) string {
	message := sides.Refusal.Error()
	if meta.IsNoMatchError(sides.Refusal) {
		return fmt.Sprintf("the cluster has no such kind (%s): install its CustomResourceDefinition", message)
	}
	for _, object := range []*unstructured.Unstructured{sides.Live, sides.Stored} {
		if survey.IsSecret(object) && slices.ContainsFunc(secretValues(object), func(value string) bool {
			return strings.Contains(message, value)
		}) {
			return fmt.Sprintf("%s (the message contains a value of the Secret and is not shown)",
				apierrors.ReasonForError(sides.Refusal))
		}
	}
	return conversion.ReplaceAllString(message, "")
}

// secretValues returns the values of a Secret, encoded and decoded, and as Go quotes them.
func secretValues(object *unstructured.Unstructured) []string {
	var values []string
	add := func(value string) {
		if value != "" {
			values = append(values, value, strings.Trim(strconv.Quote(value), `"`))
		}
	}
	for _, name := range []string{"data", "stringData"} {
		entries, _ := object.Object[name].(map[string]any)
		for _, entry := range entries {
			value := fmt.Sprint(entry)
			add(value)
			if decoded, err := base64.StdEncoding.DecodeString(value); err == nil {
				add(string(decoded))
			}
		}
	}
	return values
}
