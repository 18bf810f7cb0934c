package operator

import (
	"context"
	"encoding/pem"
	"fmt"
	"net/http/httptest"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/test/controlplane"
)

// WriteKubeconfig is WriteKubeconfigOf for the operator's ServiceAccount.
func WriteKubeconfig(
	ctx context.Context, cluster *controlplane.Cluster, path string, proxies ...*httptest.Server,
) error {
	return WriteKubeconfigOf(ctx, cluster, v1alpha1.OperatorServiceAccount, path, proxies...)
}

// WriteKubeconfigOf writes a kubeconfig with only the permissions of a ServiceAccount in the operator's namespace. If
// there is a proxy, the kubeconfig points to it, and otherwise to the API server.
func WriteKubeconfigOf(
	ctx context.Context, cluster *controlplane.Cluster, account, path string, proxies ...*httptest.Server,
) error {
	client, err := kubernetes.NewForConfig(cluster.RESTConfig())
	if err != nil {
		return err
	}
	day := int64(24 * 60 * 60)
	token, err := client.CoreV1().ServiceAccounts(v1alpha1.OperatorNamespace).CreateToken(ctx, account,
		&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &day}},
		metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("get a token for %s: %w", account, err)
	}
	config, err := clientcmd.LoadFromFile(cluster.Kubeconfig)
	if err != nil {
		return err
	}
	for user := range config.AuthInfos {
		config.AuthInfos[user] = &clientcmdapi.AuthInfo{Token: token.Status.Token}
	}
	for _, cluster := range config.Clusters {
		for _, proxy := range proxies {
			cluster.Server, cluster.CertificateAuthority = proxy.URL, ""
			cluster.CertificateAuthorityData = pem.EncodeToMemory(&pem.Block{
				Type: "CERTIFICATE", Bytes: proxy.Certificate().Raw,
			})
		}
	}
	return clientcmd.WriteToFile(*config, path)
}
