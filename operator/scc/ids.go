package scc

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// Missing reports that an object does not have an annotation yet that a constraint needs, or not the right one. Of is
// "namespace" or "service account".
type Missing struct {
	Of, Key string
	// Wrong is what is wrong with an annotation that the operator is about to repair, or empty if there is none.
	Wrong string
	// Why is why the operator cannot set the annotation, or nil if it is about to set it.
	Why error
}

func (m *Missing) Error() string {
	switch {
	case m.Why != nil:
		return fmt.Sprintf("the %s has no annotation %s: %v", m.Of, m.Key, m.Why)
	case m.Wrong != "":
		return fmt.Sprintf("the %s's annotation %s: %s: wait until the operator repairs it", m.Of, m.Key, m.Wrong)
	}
	return fmt.Sprintf("the %s has no annotation %s yet: wait until the operator sets it", m.Of, m.Key)
}

func missingInNamespace(key string) *Missing { return &Missing{Of: "namespace", Key: key} }

// ParseBlocks parses a list of ID blocks, separated by commas. Each block is first/size or first-last. As in
// Kubernetes, the largest ID is 2147483647.
func ParseBlocks(text string) ([]v1alpha1.IDRange, error) {
	var blocks []v1alpha1.IDRange
	for part := range strings.SplitSeq(text, ",") {
		block, err := parseBlock(strings.TrimSpace(part))
		if err != nil {
			return nil, fmt.Errorf("%q is not a list of ID blocks: %w", text, err)
		}
		blocks = append(blocks, block)
	}
	return blocks, nil
}

func parseBlock(text string) (v1alpha1.IDRange, error) {
	at := strings.IndexAny(text, "/-")
	if at < 0 {
		return v1alpha1.IDRange{}, fmt.Errorf("%q is neither first/size nor first-last", text)
	}
	first, err := parseID(text[:at])
	if err != nil {
		return v1alpha1.IDRange{}, err
	}
	second, err := parseID(text[at+1:])
	if err != nil {
		return v1alpha1.IDRange{}, err
	}
	block := v1alpha1.IDRange{Min: first, Max: second}
	if text[at] == '/' {
		block.Max = first + second - 1
	}
	if block.Max < block.Min || block.Max > math.MaxInt32 {
		return v1alpha1.IDRange{}, fmt.Errorf("%q is empty or ends after %d", text, math.MaxInt32)
	}
	return block, nil
}

// parseID parses an ID, which has only digits.
func parseID(text string) (int64, error) {
	if text == "" || strings.Trim(text, "0123456789") != "" {
		return 0, fmt.Errorf("%q is not an ID", text)
	}
	return strconv.ParseInt(text, 10, 64)
}

// uidRange returns the user IDs of a namespace, which are a single block.
func uidRange(annotations map[string]string) (v1alpha1.IDRange, error) {
	text, exists := annotations[v1alpha1.UIDRangeAnnotation]
	if !exists {
		return v1alpha1.IDRange{}, missingInNamespace(v1alpha1.UIDRangeAnnotation)
	}
	blocks, err := ParseBlocks(text)
	if err == nil && len(blocks) > 1 {
		err = fmt.Errorf("%q is more than one block", text)
	}
	if err != nil {
		return v1alpha1.IDRange{}, fmt.Errorf("the namespace's annotation %s: %w", v1alpha1.UIDRangeAnnotation, err)
	}
	return blocks[0], nil
}

// groupRanges returns the groups of a namespace. By default they are its user IDs.
func groupRanges(annotations map[string]string) ([]v1alpha1.IDRange, error) {
	text, exists := annotations[v1alpha1.SupplementalGroupsAnnotation]
	if !exists {
		block, err := uidRange(annotations)
		return []v1alpha1.IDRange{block}, err
	}
	blocks, err := ParseBlocks(text)
	if err != nil {
		return nil, fmt.Errorf("the namespace's annotation %s: %w", v1alpha1.SupplementalGroupsAnnotation, err)
	}
	return blocks, nil
}
