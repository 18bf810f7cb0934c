package schema

import (
	"net/netip"
	"slices"
	"strconv"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	netutils "k8s.io/utils/net"
)

// rule checks an object of a type for what its schema does not tell. Values of a wrong type are already reported.
type rule func(c *checker, at *field.Path, entries map[string]any)

// rules are the rules of the API server about the kinds that templates declare most. They are not complete.
var rules = map[string]rule{
	"io.k8s.api.rbac.v1.RoleRef":                           (*checker).roleRef,
	"io.k8s.api.rbac.v1.Subject":                           (*checker).subject,
	"io.k8s.api.rbac.v1.Role":                              (*checker).role,
	"io.k8s.api.core.v1.ResourceQuotaSpec":                 (*checker).quota,
	"io.k8s.api.core.v1.LimitRangeItem":                    (*checker).limit,
	"io.k8s.api.core.v1.ConfigMap":                         (*checker).dataKeys,
	"io.k8s.api.core.v1.Secret":                            (*checker).dataKeys,
	"io.k8s.api.networking.v1.NetworkPolicyPort":           (*checker).policyPort,
	"io.k8s.api.networking.v1.NetworkPolicyPeer":           (*checker).policyPeer,
	"io.k8s.api.networking.v1.IPBlock":                     (*checker).ipBlock,
	"io.k8s.api.policy.v1.PodDisruptionBudgetSpec":         (*checker).disruptionBudget,
	metaTypes + "LabelSelectorRequirement":                 (*checker).requirement,
	"io.k8s.api.core.v1.ScopedResourceSelectorRequirement": (*checker).scopeRequirement,
	metaTypes + "LabelSelector":                            (*checker).labelSelector,
}

// enums are the values of fields whose schemas have no enumerations.
var enums = map[string]map[string][]string{
	metaTypes + "LabelSelectorRequirement":       {"operator": {"DoesNotExist", "Exists", "In", "NotIn"}},
	"io.k8s.api.autoscaling.v2.HPAScalingPolicy": {"type": {"Percent", "Pods"}},
	"io.k8s.api.autoscaling.v2.HPAScalingRules":  {"selectPolicy": {"Disabled", "Max", "Min"}},
	"io.k8s.api.autoscaling.v2.MetricTarget":     {"type": {"AverageValue", "Utilization", "Value"}},
	"io.k8s.api.autoscaling.v2.MetricSpec": {
		"type": {"ContainerResource", "External", "Object", "Pods", "Resource"},
	},
}

// required reports each field that is missing or empty.
func (c *checker) required(at *field.Path, entries map[string]any, names ...string) {
	for _, name := range names {
		switch value := entries[name].(type) {
		case nil:
		case string:
			if value != "" {
				continue
			}
		case []any:
			if len(value) > 0 {
				continue
			}
		default:
			continue
		}
		c.report(at.Child(name), "is required", "add it")
	}
}

// oneOf reports a string that is none of the allowed ones. It ignores a value that is missing or not a string.
func (c *checker) oneOf(at *field.Path, value any, allowed ...string) {
	if text, ok := value.(string); ok && text != "" && !slices.Contains(allowed, text) {
		c.unsupported(at, text, allowed)
	}
}

func (c *checker) roleRef(at *field.Path, entries map[string]any) {
	c.oneOf(at.Child("kind"), entries["kind"], "ClusterRole", "Role")
	c.oneOf(at.Child("apiGroup"), entries["apiGroup"], rbacv1.GroupName)
}

func (c *checker) subject(at *field.Path, entries map[string]any) {
	c.oneOf(at.Child("kind"), entries["kind"], rbacv1.GroupKind, rbacv1.ServiceAccountKind, rbacv1.UserKind)
	switch group, _ := entries["apiGroup"].(string); {
	case entries["kind"] != rbacv1.ServiceAccountKind:
		c.oneOf(at.Child("apiGroup"), entries["apiGroup"], rbacv1.GroupName)
	case group != "":
		c.report(at.Child("apiGroup"), strconv.Quote(group)+" is not the API group of ServiceAccounts", "remove it")
	}
}

func (c *checker) role(at *field.Path, entries map[string]any) {
	items, _ := entries["rules"].([]any)
	for i, item := range items {
		at := at.Child("rules").Index(i)
		entry, ok := item.(map[string]any)
		switch {
		case !ok:
		case entry["nonResourceURLs"] != nil:
			if urls, ok := entry["nonResourceURLs"].([]any); ok && len(urls) > 0 {
				c.report(at.Child("nonResourceURLs"), "is not allowed in a Role",
					"remove it: only a ClusterRole can grant paths such as /metrics")
			}
		default:
			c.required(at, entry, "apiGroups", "resources")
		}
	}
}

// dataKeys checks the keys of a ConfigMap or Secret.
func (c *checker) dataKeys(at *field.Path, entries map[string]any) {
	for _, name := range []string{"data", "binaryData", "stringData"} {
		data, _ := entries[name].(map[string]any)
		for key := range data {
			if len(validation.IsConfigMapKey(key)) > 0 {
				c.report(at.Child(name).Key(key), "is not a valid key",
					"use only letters, digits, dashes, underscores and dots")
			}
		}
	}
}

func (c *checker) policyPort(at *field.Path, entries map[string]any) {
	switch port := entries["port"].(type) {
	case nil:
		if entries["endPort"] != nil {
			c.report(at.Child("endPort"), "needs a port", "add port, where the range begins")
		}
	case string:
		if entries["endPort"] != nil {
			c.report(at.Child("endPort"), "needs a port with a number", "write port as a number, without quotes")
		}
		if len(validation.IsValidPortName(port)) == 0 {
			return
		}
		remedy := "write a number, or the name of a port"
		if _, err := strconv.Atoi(port); err == nil {
			remedy = "remove the quotes: " + port
		}
		c.report(at.Child("port"), strconv.Quote(port)+" is not the name of a port", remedy)
	default:
		if number, ok := wholeNumber(port); ok {
			c.portNumber(at.Child("port"), number)
			if end, ok := wholeNumber(entries["endPort"]); ok && end < number {
				c.report(at.Child("endPort"), "must not be less than port", "")
			} else if ok {
				c.portNumber(at.Child("endPort"), end)
			}
		}
	}
}

func (c *checker) portNumber(at *field.Path, number int64) {
	if number < 1 || number > 65535 {
		c.report(at, strconv.FormatInt(number, 10)+" is not the number of a port", "write a number from 1 to 65535")
	}
}

func (c *checker) policyPeer(at *field.Path, entries map[string]any) {
	hasSelector := entries["podSelector"] != nil || entries["namespaceSelector"] != nil
	switch {
	case entries["ipBlock"] != nil && hasSelector:
		c.report(at, "has an ipBlock and a selector", "write them as two items of the list")
	case entries["ipBlock"] == nil && !hasSelector:
		c.report(at, "selects nothing", "add podSelector, namespaceSelector or ipBlock")
	}
}

func (c *checker) ipBlock(at *field.Path, entries map[string]any) {
	excluded, _ := entries["except"].([]any)
	c.cidr(at.Child("cidr"), entries["cidr"])
	for i, item := range excluded {
		c.cidr(at.Child("except").Index(i), item)
	}
}

func (c *checker) cidr(at *field.Path, value any) {
	text, ok := value.(string)
	if !ok || text == "" {
		return
	}
	if _, _, err := netutils.ParseCIDRSloppy(text); err == nil {
		return
	}
	remedy := "write it as 10.0.0.0/8 or fd00::/8"
	if address, err := netip.ParseAddr(text); err == nil {
		remedy = "did you mean " + netip.PrefixFrom(address, address.BitLen()).String() + "?"
	}
	c.report(at, strconv.Quote(text)+" is not a range of IP addresses", remedy)
}

func (c *checker) disruptionBudget(at *field.Path, entries map[string]any) {
	if entries["minAvailable"] != nil && entries["maxUnavailable"] != nil {
		c.report(at, "minAvailable and maxUnavailable exclude each other", "remove one of them")
	}
	for _, name := range []string{"minAvailable", "maxUnavailable"} {
		if text, ok := entries[name].(string); ok && len(validation.IsValidPercent(text)) > 0 {
			remedy := "write a number, or a percentage such as 50%"
			if _, err := strconv.Atoi(text); err == nil {
				remedy = "remove the quotes: " + text
			}
			c.report(at.Child(name), strconv.Quote(text)+" is not a percentage", remedy)
		}
		if number, ok := wholeNumber(entries[name]); ok && number < 0 {
			c.report(at.Child(name), "must not be negative", "")
		}
	}
}

// scopeRequirement checks a requirement in the scopeSelector of a ResourceQuota.
func (c *checker) scopeRequirement(at *field.Path, entries map[string]any) {
	c.required(at, entries, "scopeName", "operator")
	c.operands(at, entries)
}

// requirement checks a requirement in a label selector.
func (c *checker) requirement(at *field.Path, entries map[string]any) {
	c.operands(at, entries)
	values, _ := entries["values"].([]any)
	for i, value := range values {
		c.labelValue(at.Child("values").Index(i), value)
	}
}

// operands checks whether a requirement has values if its operator needs them, and only then.
func (c *checker) operands(at *field.Path, entries map[string]any) {
	values, _ := entries["values"].([]any)
	switch operator := entries["operator"]; {
	case (operator == "In" || operator == "NotIn") && len(values) == 0:
		c.report(at.Child("values"), "is required", "add the values to compare with")
	case (operator == "Exists" || operator == "DoesNotExist") && len(values) > 0:
		c.report(at.Child("values"), "must be empty", "remove it, or use the operator In or NotIn")
	}
}

func (c *checker) labelSelector(at *field.Path, entries map[string]any) {
	labels, _ := entries["matchLabels"].(map[string]any)
	for key, value := range labels {
		if problems := validation.IsQualifiedName(key); len(problems) > 0 {
			c.report(at.Child("matchLabels").Key(key), "is not a valid label key", problems[0])
		}
		c.labelValue(at.Child("matchLabels").Key(key), value)
	}
}

func (c *checker) labelValue(at *field.Path, value any) {
	if text, ok := value.(string); ok {
		if problems := validation.IsValidLabelValue(text); len(problems) > 0 {
			c.report(at, "is not a valid label value", problems[0])
		}
	}
}
