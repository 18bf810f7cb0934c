package certificates

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	"nstpl.dev/nstpl/test/controlplane"
)

var cluster *controlplane.Cluster

func TestMain(m *testing.M) {
	ctrl.SetLogger(zap.New())
	os.Exit(controlplane.Main(m, &cluster))
}

// secretsOf returns the clients of the administrator and of a user with no right but those of the operator's Role.
func secretsOf(t *testing.T, name string) (admin, user kubernetes.Interface) {
	t.Helper()
	admin, err := kubernetes.NewForConfig(cluster.RESTConfig())
	require.NoError(t, err)
	config, err := cluster.UserConfig(name)
	require.NoError(t, err)
	user, err = kubernetes.NewForConfig(config)
	require.NoError(t, err)
	_, err = admin.CoreV1().Secrets("default").Create(t.Context(),
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = admin.RbacV1().Roles("default").Create(t.Context(), &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{""}, Resources: []string{"secrets"}, ResourceNames: []string{name},
			Verbs: []string{"get", "list", "watch", "update"},
		}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = admin.RbacV1().RoleBindings("default").Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: name}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	return admin, user
}

// start runs a keeper until the test ends, and returns it when it serves.
func start(t *testing.T, clients kubernetes.Interface, name string, lifetimes Lifetimes) *Keeper {
	t.Helper()
	k := NewKeeper(clients.CoreV1().Secrets("default"), name, hosts, lifetimes)
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- k.Start(ctx) }()
	t.Cleanup(func() {
		stop()
		require.NoError(t, <-done)
	})
	require.Eventually(t, func() bool { return k.Bundle() != nil }, 20*time.Second, 10*time.Millisecond)
	return k
}

// handshake connects as the API server would that knows a bundle.
func handshake(t *testing.T, address string, bundle []byte) error {
	t.Helper()
	roots := x509.NewCertPool()
	require.True(t, roots.AppendCertsFromPEM(bundle))
	connection, err := tls.Dial("tcp", address, &tls.Config{RootCAs: roots, ServerName: hosts[0]})
	if err != nil {
		return err
	}
	return connection.Close()
}

func serve(t *testing.T, k *Keeper) (address string) {
	t.Helper()
	listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{GetCertificate: k.GetCertificate})
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			go func(connection net.Conn) {
				_ = connection.(*tls.Conn).Handshake()
				_ = connection.Close()
			}(connection)
		}
	}()
	return listener.Addr().String()
}

func TestTwoReplicasServeWhileEverythingIsReplaced(t *testing.T) {
	t.Parallel()
	_, user := secretsOf(t, "rotating")
	// Certificates know seconds: what lasts one may be over at once.
	lifetimes := Lifetimes{Authority: 24 * time.Second, Serving: 12 * time.Second}
	first, second := start(t, user, "rotating", lifetimes), start(t, user, "rotating", lifetimes)
	addresses := []string{serve(t, first), serve(t, second)}
	seen := map[string]bool{}
	bundle, bundles := first.Bundle(), 1
	for len(seen) < 4 || bundles < 3 { // an authority came, and one went
		for _, address := range addresses {
			require.NoError(t, handshake(t, address, bundle))
		}
		certificate, err := second.GetCertificate(nil)
		require.NoError(t, err)
		seen[string(certificate.Certificate[0])] = true
		select {
		case <-first.Changed():
			bundle = first.Bundle()
			bundles++
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func TestTheSecretIsPutRight(t *testing.T) {
	t.Parallel()
	admin, _ := secretsOf(t, "spoiled")
	secrets := admin.CoreV1().Secrets("default")
	k := start(t, admin, "spoiled", DefaultLifetimes())
	bundle := k.Bundle()
	for name, spoil := range map[string]func(){
		"deleted": func() { require.NoError(t, secrets.Delete(t.Context(), "spoiled", metav1.DeleteOptions{})) },
		"emptied": func() {
			_, err := secrets.Patch(t.Context(), "spoiled", "application/merge-patch+json", []byte(`{"data": null}`),
				metav1.PatchOptions{})
			require.NoError(t, err)
		},
		"garbage": func() {
			_, err := secrets.Patch(t.Context(), "spoiled", "application/merge-patch+json",
				[]byte(`{"data": {"tls.crt": "AAAA"}}`), metav1.PatchOptions{})
			require.NoError(t, err)
		},
	} {
		spoil()
		require.Eventually(t, func() bool {
			secret, err := secrets.Get(t.Context(), "spoiled", metav1.GetOptions{})
			return err == nil && bytes.Equal(secret.Data[bundleKey], bundle) && len(secret.Data) == 4 &&
				len(secret.Data[servingKey]) > 100
		}, 20*time.Second, 20*time.Millisecond, "%s: what clients trust is kept", name)
	}
	// A replica that starts now serves the same.
	require.Equal(t, bundle, start(t, admin, "spoiled", DefaultLifetimes()).Bundle())
}
