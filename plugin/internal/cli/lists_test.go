package cli_test

import (
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"nstpl.dev/nstpl/plugin/internal/cli"
	"nstpl.dev/nstpl/plugin/internal/output"
)

type fruit struct {
	Name  string `json:"name"`
	Count int    `json:"count,omitempty"`
}

// printFruits prints two lists with the flags, as a watch does, and returns the streams.
func printFruits(t *testing.T, flags []string, lists ...[]fruit) (out, errOut string, err error) {
	t.Helper()
	streams, _, outBuffer, errBuffer := genericiooptions.NewTestIOStreams()
	var list cli.ListFlags
	watch := false
	cmd := &cobra.Command{Use: "show"}
	cmd.SetFlagErrorFunc(cli.UsageError)
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "")
	list.AddTo(cmd, cli.ListOptions{Wide: true, Names: true, Watch: &watch, Optional: []string{"count"}})
	require.NoError(t, cmd.ParseFlags(flags))
	if err := cmd.PreRunE(cmd, nil); err != nil {
		return "", "", err
	}
	for _, fruits := range lists {
		err = cli.PrintList(cli.NewSession(streams), &list, cli.Printed[fruit]{
			Kind: "FruitList", Items: fruits, Empty: "No resources found",
			Name: func(f fruit) string { return "fruit/" + f.Name },
			Table: func(fruits []fruit) output.Table {
				table := output.Table{Columns: []string{"Name"}, WideColumns: []string{"Colour"}}
				for _, f := range fruits {
					table.Rows = append(table.Rows, []string{f.Name, "red"})
				}
				return table
			},
		})
		if err != nil {
			break
		}
	}
	return outBuffer.String(), errBuffer.String(), err
}

func TestListsHaveTheFormatsOfKubectl(t *testing.T) {
	fruits := []fruit{{"pear", 2}, {"apple", 10}}
	for name, test := range map[string]struct {
		flags []string
		want  string
	}{
		"a table":        {nil, "NAME\npear\napple\n"},
		"a wide table":   {[]string{"-o", "wide"}, "NAME    COLOUR\npear    red\napple   red\n"},
		"no headers":     {[]string{"--no-headers"}, "pear\napple\n"},
		"names":          {[]string{"-o", "name"}, "fruit/pear\nfruit/apple\n"},
		"jsonpath":       {[]string{"-o", "jsonpath={.items[*].count}"}, "2 10"},
		"go-template":    {[]string{"-o", "go-template={{.kind}} {{len .items}}"}, "FruitList 2"},
		"custom columns": {[]string{"-o", "custom-columns=F:.name,N:.count"}, "F       N\npear    2\napple   10\n"},
		"custom columns, no headers": {
			[]string{"-o", "custom-columns=F:.name", "--no-headers"}, "pear\napple\n",
		},
		"sorted by a string": {[]string{"--sort-by", ".name"}, "NAME\napple\npear\n"},
		"sorted by a number": {[]string{"--sort-by=count", "-o", "name"}, "fruit/pear\nfruit/apple\n"},
		"yaml": {[]string{"-o", "yaml"}, "apiVersion: policy.nstpl.dev/v1alpha1\n" +
			"items:\n- count: 2\n  name: pear\n- count: 10\n  name: apple\nkind: FruitList\n"},
	} {
		t.Run(name, func(t *testing.T) {
			out, errOut, err := printFruits(t, test.flags, fruits)
			require.NoError(t, err)
			require.Equal(t, test.want, out)
			require.Empty(t, errOut)
		})
	}
	require.Equal(t, []fruit{{"pear", 2}, {"apple", 10}}, fruits, "the caller's list keeps its order")
}

func TestAListWithoutItems(t *testing.T) {
	out, errOut, err := printFruits(t, nil, nil)
	require.NoError(t, err)
	require.Empty(t, out)
	require.Equal(t, "No resources found\n", errOut)

	out, errOut, err = printFruits(t, []string{"-o", "json"}, nil)
	require.NoError(t, err)
	require.JSONEq(t, `{"apiVersion": "policy.nstpl.dev/v1alpha1", "kind": "FruitList", "items": []}`, out)
	require.Empty(t, errOut)

	out, errOut, err = printFruits(t, []string{"--sort-by=name", "-o", "jsonpath={.items}"}, nil)
	require.NoError(t, err)
	require.Equal(t, "[]", out)
	require.Empty(t, errOut)
}

func TestAWatchContinuesTheOutput(t *testing.T) {
	out, _, err := printFruits(t, nil, []fruit{{"pear", 2}}, []fruit{{"fig", 3}})
	require.NoError(t, err)
	require.Equal(t, "NAME\npear\nfig\n", out)
	out, _, err = printFruits(t, []string{"-o", "yaml"}, nil, nil)
	require.NoError(t, err)
	require.Contains(t, out, "\n---\n")
}

func TestInvalidFlagsOfLists(t *testing.T) {
	for name, test := range map[string]struct {
		flags []string
		want  string
	}{
		"an unknown format": {[]string{"-o", "xml"}, `invalid --output "xml": must be one of wide, json, yaml, name, jsonpath=`},
		"no columns":        {[]string{"-o", "custom-columns="}, "--output: custom-columns format specified but no custom columns"},
		"a broken path":     {[]string{"-o", "jsonpath={.items["}, "--output: "},
		"a broken sort":     {[]string{"--sort-by", "{.name"}, "invalid --sort-by"},
		"a sorted watch":    {[]string{"--sort-by", "name", "-w"}, "--sort-by cannot be combined with --watch"},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := printFruits(t, test.flags)
			require.ErrorContains(t, err, test.want)
			require.ErrorContains(t, err, "see 'show -h' for help and examples")
		})
	}
	_, _, err := printFruits(t, []string{"--sort-by", "taste"}, []fruit{{"pear", 2}, {"fig", 3}})
	require.ErrorContains(t, err, "--sort-by: ")
}

// Nothing may have counted the usage of any policyspace yet.
func TestSortingByAFieldThatNoItemHas(t *testing.T) {
	for _, field := range []string{".count", "count", "{.count}"} {
		out, _, err := printFruits(t, []string{"--sort-by", field}, []fruit{{"pear", 0}, {"fig", 0}})
		require.NoError(t, err)
		require.Equal(t, "NAME\npear\nfig\n", out)
		out, _, err = printFruits(t, []string{"--sort-by", field}, []fruit{{"pear", 2}, {"fig", 0}, {"apple", 1}})
		require.NoError(t, err)
		require.Equal(t, "NAME\nfig\napple\npear\n", out, "unknown is first, as in kubectl")
	}
}

// A policyspace with two limits is two items.
func TestNamesAreNotRepeated(t *testing.T) {
	out, _, err := printFruits(t, []string{"-o", "name"}, []fruit{{"pear", 2}, {"apple", 10}, {"pear", 3}})
	require.NoError(t, err)
	require.Equal(t, "fruit/pear\nfruit/apple\n", out)
}
