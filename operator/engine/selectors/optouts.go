package selectors

import (
	"fmt"
	"slices"
	"strings"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// Keys of the data with OptOuts.
const (
	keyUsers  = "users"
	keyGroups = "groups"
)

// maxOptOuts is the size in bytes up to which OptOuts and the rules fit into one ConfigMap.
const maxOptOuts = 100 << 10

// OptOuts are the users and groups whose new namespaces are opted out. Each text has one name per line. The policies
// rely on an end of line before and after each name.
type OptOuts map[string]string

// OptOutsOf returns the lists in the data of the ConfigMap nstpl-auto-opt-out, or of its copy in nstpl-selectors.
func OptOutsOf(data map[string]string) OptOuts {
	lists := OptOuts{}
	for _, key := range []string{keyUsers, keyGroups} {
		var names []string
		for line := range strings.Lines(data[key]) {
			if name := strings.TrimSpace(line); name != "" {
				names = append(names, name)
			}
		}
		if len(names) > 0 {
			slices.Sort(names)
			lists[key] = "\n" + strings.Join(slices.Compact(names), "\n") + "\n"
		}
	}
	return lists
}

// Check returns an error if the lists do not fit into the ConfigMap.
func (o OptOuts) Check() error {
	size := len(o[keyUsers]) + len(o[keyGroups])
	if size <= maxOptOuts {
		return nil
	}
	return fmt.Errorf("the users and groups in ConfigMap %s take %d KiB: "+
		"list at most %d KiB, for example groups instead of users", v1alpha1.AutoOptOutConfigMap, size>>10, maxOptOuts>>10)
}

// Has reports whether the namespaces that a user creates are opted out. The admission policies decide the same.
func (o OptOuts) Has(user string, groups []string) bool {
	has := func(key, name string) bool {
		return !strings.Contains(name, "\n") && strings.Contains(o[key], "\n"+name+"\n")
	}
	return has(keyUsers, user) ||
		slices.ContainsFunc(groups, func(group string) bool { return has(keyGroups, group) })
}
