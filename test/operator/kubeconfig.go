package operator

import (
	"context"
	"fmt"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/test/controlplane"
)

// WriteKubeconfig writes a kubeconfig with only the permissions of the operator's ServiceAccount. The functions may
// change the cluster that it points to.
func WriteKubeconfig(
	ctx context.Context, cluster *controlplane.Cluster, path string, change ...func(*clientcmdapi.Cluster),
) error {
	return WriteKubeconfigOf(ctx, cluster, "nstpl-operator", path, change...)
}

// WriteKubeconfigOf writes a kubeconfig with only the permissions of a ServiceAccount in the operator's namespace.
func WriteKubeconfigOf(
	ctx context.Context, cluster *controlplane.Cluster, account, path string, change ...func(*clientcmdapi.Cluster),
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
		for _, apply := range change {
			apply(cluster)
		}
	}
	return clientcmd.WriteToFile(*config, path)
}
