package diff

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestFileName(t *testing.T) {
	role := schema.GroupVersionKind{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "Role"}
	require.Equal(t, "rbac.authorization.k8s.io.v1.Role.team-a.system_reader",
		fileName(role, "team-a", "system:reader"))
	secret := corev1.SchemeGroupVersion.WithKind("Secret")
	require.Equal(t, "v1.Secret.team-a..._.._etc_passwd", fileName(secret, "team-a", "../../etc/passwd"))
	long := strings.Repeat("x", 253)
	require.Less(t, len(fileName(secret, "team-a", long+"a")), 255)
	require.NotEqual(t, fileName(secret, "team-a", long+"a"), fileName(secret, "team-a", long+"b"))
}
