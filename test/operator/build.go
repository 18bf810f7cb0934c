package operator

import (
	"context"
	"fmt"
	"os/exec"
	"runtime/debug"
	"slices"
	"strings"

	"nstpl.dev/nstpl/test/controlplane"
)

// Build compiles programs of the folder cmd into a folder, with the race detector if this program is compiled with it.
// They have the same version, which is also that of a plugin in this process.
func Build(ctx context.Context, folder string, programs ...string) error {
	root, err := controlplane.Root(ctx)
	if err != nil {
		return err
	}
	args := []string{"build", "-C", root, "-buildvcs=false", "-o", folder}
	if HasRaceDetector() {
		args = append(args, "-race")
	}
	for _, program := range programs {
		args = append(args, "./cmd/"+program)
	}
	if out, err := exec.CommandContext(ctx, "go", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w\n%s", strings.Join(programs, ", "), err, out)
	}
	return nil
}

// HasRaceDetector reports whether this program is compiled with the race detector.
func HasRaceDetector() bool {
	info, ok := debug.ReadBuildInfo()
	return ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
}
