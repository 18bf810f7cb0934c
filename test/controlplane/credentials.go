package controlplane

import (
	"fmt"
	"os"
	"path/filepath"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// writeCredentials makes the certificates, keys and kubeconfigs of a new cluster that listens at url.
func writeCredentials(dir, url string) error {
	ca, err := newAuthority()
	if err != nil {
		return fmt.Errorf("make the cluster's authority: %w", err)
	}
	serving, err := ca.serving()
	if err != nil {
		return fmt.Errorf("make the API server's certificate: %w", err)
	}
	key, err := newKey()
	if err != nil {
		return err
	}
	serviceAccountKey, err := encodeKey(key)
	if err != nil {
		return err
	}
	files := map[string][]byte{
		"ca.crt":              ca.pem(),
		"apiserver.crt":       serving.cert,
		"apiserver.key":       serving.key,
		"service-account.key": serviceAccountKey,
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			return err
		}
	}
	if err := ca.writeKubeconfig(filepath.Join(dir, "controller-manager.kubeconfig"), url, "system:kube-controller-manager"); err != nil {
		return err
	}
	return ca.writeKubeconfig(filepath.Join(dir, "kubeconfig"), url, "admin", "system:masters")
}

func (a *authority) writeKubeconfig(path, url, user string, groups ...string) error {
	client, err := a.client(user, groups...)
	if err != nil {
		return fmt.Errorf("make the certificate of %s: %w", user, err)
	}
	const name = "nstpl"
	config := clientcmdapi.NewConfig()
	config.Clusters[name] = &clientcmdapi.Cluster{Server: url, CertificateAuthorityData: a.pem()}
	config.AuthInfos[user] = &clientcmdapi.AuthInfo{ClientCertificateData: client.cert, ClientKeyData: client.key}
	config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: user}
	config.CurrentContext = name
	return clientcmd.WriteToFile(*config, path)
}
