package scc

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// Missing says that a namespace has not got yet what a constraint needs of it.
type Missing struct{ Key string }

func (m *Missing) Error() string {
	return fmt.Sprintf("the namespace has no annotation %s yet, which the operator gives it", m.Key)
}

// ParseBlocks reads a list of blocks of ids, each first/size or first-last, separated by commas. Ids end at 2147483647,
// as Kubernetes' do.
func ParseBlocks(text string) ([]v1alpha1.IDRange, error) {
	var blocks []v1alpha1.IDRange
	for part := range strings.SplitSeq(text, ",") {
		block, err := parseBlock(strings.TrimSpace(part))
		if err != nil {
			return nil, fmt.Errorf("%q is no list of blocks of ids: %w", text, err)
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

// parseID takes digits and nothing else.
func parseID(text string) (int64, error) {
	if text == "" || strings.Trim(text, "0123456789") != "" {
		return 0, fmt.Errorf("%q is no id", text)
	}
	return strconv.ParseInt(text, 10, 64)
}

// uidRange returns the ids that a namespace was given, which are one block.
func uidRange(annotations map[string]string) (v1alpha1.IDRange, error) {
	text, there := annotations[v1alpha1.UIDRangeAnnotation]
	if !there {
		return v1alpha1.IDRange{}, &Missing{v1alpha1.UIDRangeAnnotation}
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

// groupRanges returns the groups that a namespace was given; they are its user ids where it says nothing else.
func groupRanges(annotations map[string]string) ([]v1alpha1.IDRange, error) {
	text, there := annotations[v1alpha1.SupplementalGroupsAnnotation]
	if !there {
		block, err := uidRange(annotations)
		return []v1alpha1.IDRange{block}, err
	}
	blocks, err := ParseBlocks(text)
	if err != nil {
		return nil, fmt.Errorf("the namespace's annotation %s: %w", v1alpha1.SupplementalGroupsAnnotation, err)
	}
	return blocks, nil
}
