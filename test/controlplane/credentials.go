package controlplane

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/keyutil"
)

// writeCredentials writes the certificates, keys and kubeconfigs of a new cluster that listens at a port. It returns
// the cluster's CA.
func writeCredentials(dir string, at *port) (*authority, error) {
	ca, err := newAuthority()
	if err != nil {
		return nil, fmt.Errorf("make the cluster's authority: %w", err)
	}
	serving, err := ca.serving(at.address)
	if err != nil {
		return nil, fmt.Errorf("make the API server's certificate: %w", err)
	}
	toKubelets, err := ca.client("kube-apiserver-kubelet-client", "system:masters")
	if err != nil {
		return nil, fmt.Errorf("make the API server's certificate for kubelets: %w", err)
	}
	key, err := newKey()
	if err != nil {
		return nil, err
	}
	serviceAccountKey, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{
		"ca.crt":                       ca.pem(),
		"apiserver.crt":                serving.cert,
		"apiserver.key":                serving.key,
		"apiserver-kubelet-client.crt": toKubelets.cert,
		"apiserver-kubelet-client.key": toKubelets.key,
		"service-account.key":          serviceAccountKey,
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			return nil, err
		}
	}
	if err := ca.writeKubeconfig(filepath.Join(dir, "controller-manager.kubeconfig"), at.url(),
		"system:kube-controller-manager"); err != nil {
		return nil, err
	}
	return ca, ca.writeKubeconfig(filepath.Join(dir, "kubeconfig"), at.url(), "admin", "system:masters")
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

// WriteKubeconfig writes a kubeconfig with a client certificate for a user.
func (c *Cluster) WriteKubeconfig(path, user string, groups ...string) error {
	if c.authority == nil {
		return errors.New("the cluster isn't ours: no certificates can be made for it")
	}
	return c.authority.writeKubeconfig(path, c.port.url(), user, groups...)
}

// UserConfig returns a client configuration with a certificate for a user. The name may be any text.
func (c *Cluster) UserConfig(user string, groups ...string) (*rest.Config, error) {
	if c.authority == nil {
		return nil, errors.New("the cluster isn't ours: no certificates can be made for it")
	}
	pair, err := c.authority.client(user, groups...)
	if err != nil {
		return nil, fmt.Errorf("make the certificate of %q: %w", user, err)
	}
	config := c.RESTConfig()
	config.TLSClientConfig = rest.TLSClientConfig{CAData: c.authority.pem(), CertData: pair.cert, KeyData: pair.key}
	return config, nil
}
