package vet

import (
	"strings"
	"sync"

	"nstpl.dev/nstpl/docs"
)

// The rules about files. Package hierarchy has those about trees, and package render has more about templates.
const (
	ruleParse     = "parse"
	ruleSchema    = "schema"
	ruleDuplicate = "duplicate"
	ruleSelector  = "selector"
	ruleToken     = "token"
	ruleCycle     = "cycle"
	ruleQuota     = "quota"
	ruleServer    = "server"
)

// rule describes a rule: what a violation means, and what to do about it.
type rule struct {
	id, meaning, remedy string
}

// rules returns all rules of files and trees: the rows of the table in docs/vet.md, without its backticks.
var rules = sync.OnceValue(func() []rule {
	var all []rule
	for _, row := range docs.Table("vet.md", "rule") {
		for i, cell := range row {
			row[i] = strings.ReplaceAll(cell, "`", "")
		}
		all = append(all, rule{row[0], row[1], row[2]})
	}
	return all
})
