package main

import (
	"bytes"
	"maps"
	"slices"
	"strings"
	"time"

	cyclonedx "github.com/CycloneDX/cyclonedx-go"
)

// writeSBOM writes a CycloneDX list of the modules in a program, with those of all platforms. The Go toolchain records
// the modules in each executable.
func (r *release) writeSBOM(name string, programs []program) error {
	modules := map[string]cyclonedx.Component{}
	for _, p := range programs {
		for _, module := range p.info.Deps {
			if module.Replace != nil {
				module = module.Replace
			}
			modules[module.Path] = component(module.Path, module.Version)
		}
		modules["std"] = component("std", p.info.GoVersion[len("go"):])
	}
	components := make([]cyclonedx.Component, 0, len(modules))
	references := make([]string, 0, len(modules))
	for _, path := range slices.Sorted(maps.Keys(modules)) {
		components, references = append(components, modules[path]), append(references, modules[path].BOMRef)
	}
	bom := cyclonedx.NewBOM()
	main := component("nstpl.dev/nstpl", r.version)
	main.Type, main.Name = cyclonedx.ComponentTypeApplication, name
	main.Licenses = &cyclonedx.Licenses{{License: &cyclonedx.License{ID: "Apache-2.0"}}}
	bom.Metadata = &cyclonedx.Metadata{Timestamp: r.commitTime.Format(time.RFC3339), Component: &main}
	bom.Components = &components
	bom.Dependencies = &[]cyclonedx.Dependency{{Ref: main.BOMRef, Dependencies: &references}}
	var content bytes.Buffer
	if err := cyclonedx.NewBOMEncoder(&content, cyclonedx.BOMFileFormatJSON).SetPretty(true).Encode(bom); err != nil {
		return err
	}
	_, err := r.write(name+"-"+r.version+".cdx.json", content.Bytes())
	return err
}

func component(path, version string) cyclonedx.Component {
	// Package URLs of type golang are in lower case.
	url := "pkg:golang/" + strings.ToLower(path) + "@" + strings.ReplaceAll(version, "+", "%2B")
	return cyclonedx.Component{
		BOMRef: url, Type: cyclonedx.ComponentTypeLibrary, Name: path, Version: version, PackageURL: url,
	}
}
