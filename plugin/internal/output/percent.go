package output

import (
	"math/big"

	"k8s.io/apimachinery/pkg/api/resource"
)

// Percent returns how much of a limit is used, rounded down, so that only a full limit is at 100 percent. A limit of 0
// is always used up. Floating-point numbers would make 28 percent of 29 of 100.
func Percent(used, limit resource.Quantity) int {
	if limit.Sign() <= 0 {
		return 100
	}
	share := new(big.Rat).Quo(rational(used), rational(limit))
	share.Mul(share, big.NewRat(100, 1))
	return int(new(big.Int).Quo(share.Num(), share.Denom()).Int64())
}

func rational(quantity resource.Quantity) *big.Rat {
	number := quantity.AsDec()
	exact, _ := new(big.Rat).SetString(number.String()) // fails for no decimal number
	return exact
}
