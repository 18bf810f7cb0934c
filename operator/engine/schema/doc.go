// Package schema checks objects against the schemas of their kinds, without a cluster.
package schema
