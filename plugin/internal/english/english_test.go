package english_test

import (
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
	_ "k8s.io/kubectl/pkg/cmd/apiresources" // loads the translations when it is initialized
	"k8s.io/kubectl/pkg/util/i18n"

	_ "nstpl.dev/nstpl/plugin/internal/english"
)

// translated is a text of kubectl that has a Chinese translation.
const translated = "Mark node as schedulable"

func TestMain(m *testing.M) {
	if os.Getenv("LC_ALL") == "zh_CN.UTF-8" { // the process that TestTextsAreEnglish starts
		fmt.Print(i18n.T(translated))
		return
	}
	os.Exit(m.Run())
}

func TestTextsAreEnglish(t *testing.T) {
	t.Parallel()
	program, err := os.Executable()
	require.NoError(t, err)
	chinese := exec.CommandContext(t.Context(), program)
	chinese.Env = append(os.Environ(), "LC_ALL=zh_CN.UTF-8")
	printed, err := chinese.Output()
	require.NoError(t, err)
	require.Equal(t, translated, string(printed))
}
