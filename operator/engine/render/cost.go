package render

import (
	"errors"
	"fmt"
	"io"
	"regexp/syntax"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/kustomize/api/konfig"
	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/kustomize/kyaml/resid"
	"sigs.k8s.io/kustomize/kyaml/yaml"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// size is what a build of kustomize has to handle. It is estimated rather too high than too low, because a build cannot
// be canceled.
type size struct {
	// values is the number of values and keys in JSON. kustomize needs about half a KiB of memory for each.
	values int
	// text is the number of bytes in them. kustomize needs about ten for each.
	text int
}

func (s *size) add(more size) {
	s.values += more.values
	s.text += more.text
}

func (s *size) addText(text string) { s.add(size{1, len(text)}) }

// total returns the number of values that take as much memory, at most one more than maxValues.
func (s *size) total() int { return min(s.values+s.text/64, maxValues+1) }

// sized is an object with the size that it may have.
type sized struct {
	size
	gvk  resid.Gvk
	name string
	// items is the number of items in all its lists that are merged, and longest that of the longest one.
	items, longest int
	// hasInternal is true if it contains an annotation of kustomize. An operation may copy it, so that the object has
	// another name for targets.
	hasInternal bool
}

func sizesOf(objects []*unstructured.Unstructured) []sized {
	sizes := make([]sized, 0, len(objects))
	for _, object := range objects {
		one := sized{gvk: gvkOf(object), name: object.GetName()}
		one.items, one.longest = itemsIn(object.Object)
		eachText(object.Object, func(text string) {
			one.addText(text)
			one.hasInternal = one.hasInternal || isInternal(text)
		})
		sizes = append(sizes, one)
	}
	return sizes
}

// mergedLists are the fields of Kubernetes' kinds with the patch strategy merge, which kustomize's schema knows. In
// their lists, a strategic merge looks up each item among all. Other lists it replaces, such as the addresses in a
// NetworkPolicy.
var mergedLists = sets.New("addresses", "conditions", "containers", "drivers", "env", "ephemeralContainers", "finalizers",
	"hostAliases", "hostIPs", "imagePullSecrets", "initContainers", "matchConditions", "ownerReferences", "podCIDRs",
	"podIPs", "ports", "resourceClaims", "schedulingGates", "secrets", "topologySpreadConstraints", "variables",
	"volumeDevices", "volumeMounts", "volumes", "webhooks")

// itemsIn returns the number of items in all lists of a JSON value that are merged, and that in the longest one.
func itemsIn(value any) (items, longest int) {
	for inside := range within(value) {
		fields, _ := inside.(map[string]any)
		for key, field := range fields {
			if list, isList := field.([]any); isList && mergedLists.Has(key) {
				items, longest = items+len(list), max(longest, len(list))
			}
		}
	}
	return items, longest
}

func gvkOf(object *unstructured.Unstructured) resid.Gvk {
	kind := object.GroupVersionKind()
	return resid.Gvk{Group: kind.Group, Version: kind.Version, Kind: kind.Kind}
}

// eachText calls a function with each key and each text in a JSON value, and with "" for every other value.
func eachText(value any, found func(text string)) {
	for inside := range within(value) {
		text, _ := inside.(string)
		found(text)
		fields, _ := inside.(map[string]any)
		for key := range fields {
			found(key)
		}
	}
}

// estimate is what a build takes.
type estimate struct {
	// objects are those that the build returns.
	objects []sized
	patches size
	// steps take about a microsecond of CPU each, in the slowest cases that were measured.
	steps int
}

// values returns the number of values in all objects.
func (e *estimate) values() int {
	values := 0
	for i := range e.objects {
		values += e.objects[i].total()
	}
	return values
}

// estimateBuild returns what applying an overlay to objects takes, and the problems of the patches that cannot be
// estimated. It counts these as nothing.
func estimateBuild(objects []sized, overlay v1alpha1.Overlay) (estimate, []Problem) {
	e := estimate{objects: slices.Clone(objects)}
	var patches []patchSize
	var problems []Problem
	for i, patch := range overlay.Patches {
		sizes, err := sizesOfPatch(patch)
		for _, problem := range problemsIn(err) {
			problem.Path = fmt.Sprintf("patches[%d]", i)
			problems = append(problems, problem)
		}
		for _, document := range sizes {
			e.patches.add(document.size)
		}
		if patches = append(patches, sizes...); e.patches.total() > maxValues {
			return e, problems
		}
	}
	// Patches that change names may give an object the name that a later patch selects.
	rename := slices.ContainsFunc(patches, func(p patchSize) bool { return p.renames }) ||
		slices.ContainsFunc(objects, func(o sized) bool { return o.hasInternal })
	names := namesLength(objects)
	for _, patch := range patches {
		e.steps += 10*patch.values + patch.pairs/100 + len(objects)*(1+patch.values/8) + patch.pattern*(1+names/64)
		if e.steps > maxSteps {
			return e, problems
		}
		for i := range e.objects {
			if rename || patch.selects(&objects[i]) {
				e.apply(&e.objects[i], patch)
			}
		}
	}
	e.applyRest(overlay)
	return e, problems
}

// problem returns why a build would take too much memory or time, and whether it would.
func (e *estimate) problem() (Problem, bool) {
	problem := Problem{Rule: ruleSize, Remedy: "split the template into several, or make the overlay smaller"}
	switch values := e.values() + e.patches.total(); {
	case values > maxValues:
		problem.Message = fmt.Sprintf("applied to all objects, it has about %d values, more than the allowed %d "+
			"(64 bytes of text count as one)", values, maxValues)
	case e.steps > maxSteps:
		problem.Message = fmt.Sprintf("it takes too long to apply it to %d objects", len(e.objects))
	default:
		return problem, false
	}
	return problem, true
}

func namesLength(objects []sized) int {
	length := 0
	for _, object := range objects {
		length += len(object.name)
	}
	return length
}

// apply applies a patch to an object. A strategic merge may look up each of its values among all values of the object,
// and it looks up each item of a list among all items, also those of lists that are not in the patch.
func (e *estimate) apply(object *sized, patch patchSize) {
	object.items += patch.items
	object.longest += patch.items
	e.steps += 200 + patch.selector/4 + patch.merges*object.items*object.longest + (object.text+patch.text)/8 +
		4*(object.values+patch.values) + object.values*patch.values/8
	object.add(size{max(patch.values-patch.overhead, 0), patch.text + len(object.name)}) // kustomize notes the name
	if patch.copies > 0 {
		doublings := min(patch.copies, 16)
		object.items <<= doublings
		object.add(size{min(object.values<<doublings, maxCopied/2), min(object.text<<doublings, maxCopied)})
	}
	object.items, object.longest = min(object.items, maxValues), min(object.longest, maxValues)
	object.limit()
}

// limit keeps numbers from becoming so large that their products overflow.
func (s *size) limit() { s.values, s.text = min(s.values, maxValues+1), min(s.text, 64*(maxValues+1)) }

// applyRest applies everything but the patches of an overlay. kustomize looks up each field of an object among all of
// them, once more for every image. It looks up names that objects contain among all objects.
func (e *estimate) applyRest(overlay v1alpha1.Overlay) {
	var added size
	for _, pairs := range []map[string]string{overlay.Labels, overlay.Annotations} {
		for key, value := range pairs {
			added.addText(key)
			added.addText(value)
		}
		if len(pairs) > 0 {
			added.add(size{2, 16})
		}
	}
	if len(overlay.Replicas) > 0 {
		added.add(size{4, 32})
	}
	image := 0
	for _, replaced := range overlay.Images {
		image = max(image, len(replaced.NewName)+len(replaced.NewTag)+len(replaced.Digest))
	}
	values := 0
	for i := range e.objects {
		object := &e.objects[i]
		object.add(added)
		object.add(size{text: image * object.values / 3}) // a container with an image has three values
		object.limit()
		values += object.values
		e.steps += object.text/16 + object.values*object.values/500*(1+len(overlay.Images)) +
			40*(len(overlay.Labels)+len(overlay.Images)+len(overlay.Replicas))
	}
	e.steps += len(e.objects) * (len(e.objects) + values/8) / 2
}

// patchSize is what a patch adds to each of the objects that it selects, at most.
type patchSize struct {
	size
	// overhead is the number of values that it does not add, such as the names of operations.
	overhead int
	selects  func(*sized) bool
	// pairs is the number of pairs of keys in its maps. kustomize compares each pair, whatever the patch selects.
	pairs int
	// items is the number of items in its lists that are merged, or that operations of a JSON patch may put there.
	// merges is how many strategic merges it contains.
	items, merges int
	// copies is how many operations may copy values.
	copies int
	// renames is true if the patch may change the kind or the name of an object.
	renames bool
	// hasInternal is true if it contains an annotation by which kustomize itself controls a build.
	hasInternal bool
	// pattern is the length of the regular expressions by which it selects, with all repetitions, and selector that of
	// the selectors of labels and annotations, which kustomize parses for each object.
	pattern, selector int
}

func (p *patchSize) addText(text string) {
	p.size.addText(text)
	if text == "copy" {
		p.copies++
	}
	p.renames = p.renames || p.merges == 0 && isIdentityPath(text)
	p.hasInternal = p.hasInternal || isInternal(text)
}

// isInternal reports whether a key or a path contains an annotation by which kustomize itself controls a build. In a
// path, the slash that follows is escaped.
func isInternal(text string) bool { return strings.Contains(text, konfig.ConfigAnnoDomain) }

// isIdentityPath reports whether a JSON patch may change the kind or the name of an object by an operation with the
// path. Such a patch ignores what is before the first slash.
func isIdentityPath(path string) bool {
	_, field, hasSlash := strings.Cut(path, "/")
	return hasSlash && slices.Contains([]string{"", "apiVersion", "kind", "metadata", "metadata/name"}, field)
}

// addDocument adds a document. An operation has at least the fields op and path. A strategic merge patch has the kind
// and the name of an object.
func (p *patchSize) addDocument(document *yaml.Node) error {
	switch content := document.Content; {
	case len(content) == 0:
	case content[0].Kind == yaml.SequenceNode:
		p.overhead = 2 + 5*len(content[0].Content)
	case content[0].Kind == yaml.MappingNode:
		p.overhead, p.merges = 8, 1
	}
	return p.addNode(document)
}

func (p *patchSize) addNode(node *yaml.Node) error {
	if err := checkNode(node); err != nil {
		return err
	}
	p.addText(node.Value)
	switch node.Kind {
	case yaml.SequenceNode:
		if p.merges == 0 {
			p.items += len(node.Content)
		}
	case yaml.MappingNode:
		p.pairs += len(node.Content) * len(node.Content) / 4
	}
	for i, child := range node.Content {
		if err := p.addNode(child); err != nil {
			return err
		}
		switch isField := node.Kind == yaml.MappingNode && i%2 == 1; {
		case !isField:
		case p.merges == 0: // an operation with an empty path replaces the object
			p.renames = p.renames || node.Content[i-1].Value == "path" && child.Value == ""
		case child.Kind == yaml.SequenceNode && mergedLists.Has(node.Content[i-1].Value):
			p.items += len(child.Content)
		}
	}
	return nil
}

// checkNode returns a Problem for a node of a patch that must not be decoded. Aliases and merge keys may repeat nodes,
// even without end. The error about equal keys would have a line for each pair of them.
func checkNode(node *yaml.Node) error {
	if node.Kind == yaml.AliasNode {
		return Problem{
			Rule: ruleOverlay, Message: "the patch has the YAML alias *" + node.Value,
			Remedy: "write the value for which it stands",
		}
	}
	if node.Kind != yaml.MappingNode {
		return nil
	}
	type key struct {
		kind yaml.Kind
		text string
	}
	seen := map[key]bool{}
	for i := 0; i < len(node.Content); i += 2 {
		one := key{node.Content[i].Kind, node.Content[i].Value}
		switch {
		case one.text == "<<" || node.Content[i].ShortTag() == yaml.MergeTag:
			return Problem{
				Rule: ruleOverlay, Message: "the patch has the key <<, which merges maps in YAML",
				Remedy: "write the fields that it merges",
			}
		case seen[one]:
			return Problem{
				Rule: ruleOverlay, Message: fmt.Sprintf("the patch has the key %q twice in one map", one.text),
				Remedy: "remove one of them",
			}
		}
		seen[one] = true
	}
	return nil
}

// maxPattern is the length of the regular expressions of a target with all repetitions. Compiled, they take about 40
// bytes for each of them.
const maxPattern = 4096

// sizesOfPatch returns the sizes of the documents in a patch, or a Problem. kustomize must not read a patch of which
// the size is not known. It reads YAML, and JSON that is not YAML.
func sizesOfPatch(patch v1alpha1.Patch) ([]patchSize, error) {
	var target patchSize
	if patch.Target != nil {
		if target.pattern = patternOf(patch.Target); target.pattern > maxPattern {
			return nil, Problem{
				Rule: ruleOverlay, Message: "the regular expressions of the target are too long, or repeat too much",
				Remedy: "write shorter ones",
			}
		}
		target.selects = selectedBy(patch.Target)
		target.selector = len(patch.Target.LabelSelector) + len(patch.Target.AnnotationSelector)
	}
	sizes, err := sizesOfDocuments(patch, target)
	if slices.ContainsFunc(sizes, func(p patchSize) bool { return p.hasInternal }) {
		return nil, Problem{
			Rule: ruleOverlay, Remedy: "remove it",
			Message: "the patch has an annotation of " + konfig.ConfigAnnoDomain + ", which is reserved for kustomize",
		}
	}
	return sizes, err
}

func sizesOfDocuments(patch v1alpha1.Patch, target patchSize) (sizes []patchSize, err error) {
	decoder := yaml.NewDecoder(strings.NewReader(strings.TrimSpace(patch.Patch)))
	for {
		var document yaml.Node
		err := decoder.Decode(&document)
		if errors.Is(err, io.EOF) {
			return sizes, nil
		}
		one := target
		var operations []any
		switch {
		case err == nil:
			if err := one.addDocument(&document); err != nil {
				return nil, err
			}
			if patch.Target == nil {
				one.selectNamed(&document)
			}
		case patch.Target != nil && utiljson.Unmarshal([]byte(patch.Patch), &operations) == nil:
			eachText(operations, one.addText)
			one.renames = true
			one.items = one.values
			return []patchSize{one}, nil
		default:
			return nil, Problem{Rule: ruleOverlay, Message: invalidYAML, Remedy: invalidYAMLRemedy}
		}
		if sizes = append(sizes, one); one.total() > maxValues {
			return sizes, nil
		}
	}
}

// isReadable reports whether a patch can be decoded in little memory.
func isReadable(patch v1alpha1.Patch) bool {
	sizes, err := sizesOfPatch(patch)
	return err == nil && !slices.ContainsFunc(sizes, func(p patchSize) bool { return p.total() > maxValues })
}

// selectNamed makes the patch select the object of the kind and name that it contains. A List contains several patches.
func (p *patchSize) selectNamed(document *yaml.Node) {
	if len(document.Content) == 0 {
		document = &yaml.Node{Content: []*yaml.Node{{}}}
	}
	root := document.Content[0]
	kind, name := fieldOf(root, "kind").Value, fieldOf(fieldOf(root, "metadata"), "name").Value
	isList := strings.HasSuffix(kind, "List") && !fieldOf(root, "items").IsZero()
	if isList {
		p.merges = 1 + p.values/4
		p.values, p.overhead = 8*p.values, 0
	}
	p.selects = func(object *sized) bool {
		return isList || kind == object.gvk.Kind && name == object.name
	}
}

// fieldOf returns a field of a node, or a zero node.
func fieldOf(node *yaml.Node, name string) *yaml.Node {
	for i := 0; i+1 < len(node.Content) && node.Kind == yaml.MappingNode; i += 2 {
		if node.Content[i].Value == name {
			return node.Content[i+1]
		}
	}
	return &yaml.Node{}
}

// selectedBy returns whether a target may select an object. Labels and annotations may change, so they do not count.
func selectedBy(target *v1alpha1.PatchTarget) func(*sized) bool {
	compile := sync.OnceValues(func() (*types.SelectorRegex, error) {
		return types.NewSelectorRegex(selectorOf(target))
	})
	return func(object *sized) bool {
		selector, err := compile() // kustomize reports the error
		return err == nil && selector.MatchGvk(object.gvk) && selector.MatchName(object.name)
	}
}

// patternOf returns the length of the regular expressions of a target with all repetitions.
func patternOf(target *v1alpha1.PatchTarget) int {
	length := 0
	for _, pattern := range []string{target.Group, target.Version, target.Kind, target.Name} {
		parsed, err := syntax.Parse("^(?:"+pattern+")$", syntax.Perl) // as kustomize, which reports the error
		if err == nil && pattern != "" {
			length += patternLength(parsed)
		}
	}
	return length
}

func patternLength(pattern *syntax.Regexp) int {
	length := 1 + len(pattern.Rune)
	for _, sub := range pattern.Sub {
		length += patternLength(sub)
	}
	if pattern.Op == syntax.OpRepeat {
		length *= max(pattern.Min, pattern.Max, 1)
	}
	return length
}
