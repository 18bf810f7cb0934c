package main

import (
	"bytes"
	"maps"
	"slices"
	"strings"
	"time"

	cyclonedx "github.com/CycloneDX/cyclonedx-go"
)

// writeSBOM lists the modules that a program is made of on any of its platforms, as the Go toolchain recorded them in
// it.
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
	main := component("nstpl.dev/nstpl", r.Version)
	main.Type, main.Name = cyclonedx.ComponentTypeApplication, name
	main.Licenses = &cyclonedx.Licenses{{License: &cyclonedx.License{ID: "Apache-2.0"}}}
	bom.Metadata = &cyclonedx.Metadata{Timestamp: r.at.Format(time.RFC3339), Component: &main}
	bom.Components = &components
	bom.Dependencies = &[]cyclonedx.Dependency{{Ref: main.BOMRef, Dependencies: &references}}
	var content bytes.Buffer
	if err := cyclonedx.NewBOMEncoder(&content, cyclonedx.BOMFileFormatJSON).SetPretty(true).Encode(bom); err != nil {
		return err
	}
	_, err := r.write(name+"-"+r.Version+".cdx.json", content.Bytes())
	return err
}

func component(path, version string) cyclonedx.Component {
	// The type golang of package URLs has names in lower case.
	url := "pkg:golang/" + strings.ToLower(path) + "@" + strings.ReplaceAll(version, "+", "%2B")
	return cyclonedx.Component{
		BOMRef: url, Type: cyclonedx.ComponentTypeLibrary, Name: path, Version: version, PackageURL: url,
	}
}
