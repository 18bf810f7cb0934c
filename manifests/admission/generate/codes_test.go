package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"nstpl.dev/nstpl/operator/codes"
)

// policy is what the test reads of a ValidatingAdmissionPolicy or its binding.
type policy struct {
	Kind     string
	Metadata struct{ Name string }
	Spec     struct {
		PolicyName        string
		ValidationActions []string
		Validations       []struct{ Message, MessageExpression string }
	}
}

// Users find out what a denial means by its code, also if the policy is not written in Go.
func TestEveryDenialOfAPolicyEndsInACode(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../*.yaml")
	require.NoError(t, err)
	denials := 0
	for _, file := range files {
		content, err := os.ReadFile(file)
		require.NoError(t, err)
		var policies []policy
		for document := range strings.SplitSeq(string(content), "\n---\n") {
			var p policy
			require.NoError(t, yaml.Unmarshal([]byte(document), &p), file)
			policies = append(policies, p)
		}
		for _, p := range policies {
			denies := slices.ContainsFunc(policies, func(binding policy) bool {
				return binding.Spec.PolicyName == p.Metadata.Name &&
					slices.Contains(binding.Spec.ValidationActions, "Deny")
			})
			if p.Kind != "ValidatingAdmissionPolicy" || !denies {
				continue
			}
			for _, validation := range p.Spec.Validations {
				denials++
				text := validation.Message
				if text == "" {
					require.Regexp(t, `'$`, validation.MessageExpression, p.Metadata.Name)
					text = strings.TrimSuffix(validation.MessageExpression, "'")
				}
				end := regexp.MustCompile(` \(nstpl:[a-z-]+\)$`).FindString(text)
				require.NotEmpty(t, end, "%s: a message ends in no code: %s", p.Metadata.Name, text)
				_, isKnown := codes.Explain(codes.Find(end)[0])
				require.True(t, isKnown, "%s: %s is not in package codes", p.Metadata.Name, end)
			}
		}
	}
	require.Greater(t, denials, 20)
}
