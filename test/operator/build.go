package operator

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"

	"nstpl.dev/nstpl/test/controlplane"
)

// Build compiles programs of the folder cmd and copies them to a folder, with the race detector if this program is
// compiled with it. They have the same version, which is also that of a plugin in this process. The tests of several
// packages need the same programs, which go build links only once if it finds them where it wrote them.
func Build(ctx context.Context, folder string, programs ...string) error {
	root, err := controlplane.Root(ctx)
	if err != nil {
		return err
	}
	linked := filepath.Join(root, "bin", "test")
	args := []string{"build", "-C", root, "-buildvcs=false"}
	if HasRaceDetector() {
		linked += "-race"
		args = append(args, "-race")
	}
	args = append(args, "-o", linked+string(filepath.Separator))
	for _, program := range programs {
		args = append(args, "./cmd/"+program)
	}
	if out, err := exec.CommandContext(ctx, "go", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w\n%s", strings.Join(programs, ", "), err, out)
	}
	for _, program := range programs {
		content, err := os.ReadFile(filepath.Join(linked, program))
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(folder, program), content, 0o755); err != nil {
			return err
		}
	}
	return nil
}

// HasRaceDetector reports whether this program is compiled with the race detector.
func HasRaceDetector() bool {
	info, ok := debug.ReadBuildInfo()
	return ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
}
