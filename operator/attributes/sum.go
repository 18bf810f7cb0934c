package attributes

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Sum is the sum of hashes of objects, and so does not depend on their order. Adding and removing an object takes the
// same time for any number of objects. The zero value is the sum of no objects.
type Sum [sha256.Size / 8]uint64

// Add adds an object. It counts the object's UID and generation.
func (s *Sum) Add(object metav1.Object) {
	for i, word := range words(object) {
		s[i] += word
	}
}

// Remove removes an object that has been added with the same generation.
func (s *Sum) Remove(object metav1.Object) {
	for i, word := range words(object) {
		s[i] -= word
	}
}

func words(object metav1.Object) (words Sum) {
	hash := sha256.Sum256([]byte(string(object.GetUID()) + " " + strconv.FormatInt(object.GetGeneration(), 10)))
	for i := range words {
		words[i] = binary.BigEndian.Uint64(hash[8*i:])
	}
	return words
}

// Revision returns a hash of the sum, which is a part of a URL and of the name of an annotation.
func (s *Sum) Revision() string {
	var data []byte
	for _, word := range s {
		data = binary.BigEndian.AppendUint64(data, word)
	}
	hash := sha256.Sum256(data)
	return hex.EncodeToString(hash[:10])
}
