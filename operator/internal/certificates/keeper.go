// Package certificates issues and rotates the certificate of the operator's webhooks, and keeps it in a Secret that all
// replicas share. A Keeper serves the certificate from memory. Files that the kubelet mounts from the Secret would be a
// minute late after each change, and no kubelet exists where the operator runs outside of a cluster.
package certificates

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
)

// tryAgain is the interval before a retry.
const tryAgain = time.Second

// Keeper keeps the certificate valid and serves it. Each replica has one. It is safe for concurrent use.
type Keeper struct {
	secrets   corev1client.SecretInterface
	name      string
	hosts     []string
	lifetimes Lifetimes
	changed   chan struct{}

	mu      sync.RWMutex
	current *content
}

// NewKeeper returns a Keeper of the certificate in a Secret. hosts are the DNS names and IP addresses of the
// certificate.
func NewKeeper(secrets corev1client.SecretInterface, name string, hosts []string, lifetimes Lifetimes) *Keeper {
	return &Keeper{secrets: secrets, name: name, hosts: hosts, lifetimes: lifetimes, changed: make(chan struct{}, 1)}
}

// GetCertificate returns the certificate, for a tls.Config.
func (k *Keeper) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	k.mu.RLock()
	defer k.mu.RUnlock()
	if k.current == nil {
		return nil, errors.New("there is no certificate yet")
	}
	return &k.current.serving, nil
}

// Bundle returns the authorities that clients must trust, as PEM. It returns nil until they are known.
func (k *Keeper) Bundle() []byte {
	k.mu.RLock()
	defer k.mu.RUnlock()
	if k.current == nil {
		return nil
	}
	return k.current.pem()
}

// Changed returns a channel that receives a value after the bundle has changed.
func (k *Keeper) Changed() <-chan struct{} { return k.changed }

// NeedLeaderElection returns false, because every replica serves.
func (*Keeper) NeedLeaderElection() bool { return false }

// Start follows the Secret and renews its certificates until ctx is done.
func (k *Keeper) Start(ctx context.Context) error {
	changes := k.watch(ctx)
	for {
		wait := k.lifetimes.check()
		if err := k.ensure(ctx); err != nil && ctx.Err() == nil {
			ctrl.LoggerFrom(ctx).Error(err, "cannot renew the certificate of the webhooks", "secret", k.name)
			wait = tryAgain
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changes:
		case <-time.After(wait):
		}
	}
}

// watch returns a channel that receives a value after the Secret has changed.
func (k *Keeper) watch(ctx context.Context) <-chan struct{} {
	changes := make(chan struct{}, 1)
	notify := func() {
		select {
		case changes <- struct{}{}:
		default:
		}
	}
	only := func(options *metav1.ListOptions) {
		options.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, k.name).String()
	}
	informer := cache.NewSharedIndexInformer(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			only(&options)
			return k.secrets.List(ctx, options)
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			only(&options)
			return k.secrets.Watch(ctx, options)
		},
	}, &corev1.Secret{}, 0, nil)
	// It fails only for an informer that has ended.
	_, _ = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { notify() }, UpdateFunc: func(any, any) { notify() }, DeleteFunc: func(any) { notify() },
	})
	go informer.RunWithContext(ctx)
	return changes
}

// ensure renews the certificates of the Secret and serves them. If another replica writes at the same time, ensure
// serves what the other replica wrote.
func (k *Keeper) ensure(ctx context.Context) error {
	for {
		secret, err := k.secrets.Get(ctx, k.name, metav1.GetOptions{})
		absent := apierrors.IsNotFound(err)
		if err != nil && !absent {
			return fmt.Errorf("read Secret %s: %w", k.name, err)
		}
		found := k.content(secret.Data)
		if err := found.renew(k.hosts, k.lifetimes, time.Now()); err != nil {
			return fmt.Errorf("make a certificate: %w", err)
		}
		data, err := found.data()
		if err != nil {
			return fmt.Errorf("make a certificate: %w", err)
		}
		if err = k.write(ctx, secret, data, absent); err == nil {
			k.serve(&found)
			return nil
		}
		if !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("write Secret %s: %w", k.name, err)
		}
	}
}

// content returns the content of the Secret. If it is invalid, content returns what is served now, which clients trust.
func (k *Keeper) content(data map[string][]byte) content {
	found, err := read(data)
	if err == nil {
		return found
	}
	k.mu.RLock()
	defer k.mu.RUnlock()
	if k.current != nil {
		return *k.current
	}
	return content{}
}

func (k *Keeper) write(ctx context.Context, secret *corev1.Secret, data map[string][]byte, absent bool) error {
	if absent {
		_, err := k.secrets.Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: k.name}, Data: data},
			metav1.CreateOptions{})
		return err
	}
	if equality.Semantic.DeepEqual(secret.Data, data) {
		return nil
	}
	secret.Data = data
	_, err := k.secrets.Update(ctx, secret, metav1.UpdateOptions{})
	return err
}

func (k *Keeper) serve(now *content) {
	k.mu.Lock()
	before := k.current
	k.current = now
	k.mu.Unlock()
	if before != nil && bytes.Equal(before.pem(), now.pem()) {
		return
	}
	select {
	case k.changed <- struct{}{}:
	default:
	}
}
