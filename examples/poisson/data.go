package main

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"

	"gonum.org/v1/gonum/stat/distuv"
)

// header names the columns of the data: the region, the vehicle, the age of the
// driver in decades from 50, the decades that the driver is younger than 28, the
// years that the policy was in force, and the claims.
const header = "region,vehicle,age,novice,years,claims"

// truth has the weights that the data are generated with. The first categories
// in sorted order, east and car, are what others are compared to.
var truth = map[string]float64{
	"(Intercept)":  -1.3,
	"region=north": -0.4, "region=south": 0.1, "region=west": 0.5,
	"vehicle=van": 0.3,
	"age":         -0.12,
	"novice":      0.9,
}

const trueShape = 0.7 // of the gamma distribution of rates, of mean 1

// driver returns the columns age and novice.
func driver(age float64) (decades, novice float64) {
	return (age - 50) / 10, math.Max(0, 28-age) / 10
}

// rate returns the true claims a year of a driver.
func rate(region, vehicle string, age float64) float64 {
	decades, novice := driver(age)
	return math.Exp(truth["(Intercept)"] + truth["region="+region] + truth["vehicle="+vehicle] +
		truth["age"]*decades + truth["novice"]*novice)
}

// csvRow is a line of the table.
func csvRow(region, vehicle string, age, years float64, claims int) string {
	decades, novice := driver(age)
	return fmt.Sprintf("%s,%s,%.2f,%.2f,%.3f,%d\n", region, vehicle, decades, novice, years, claims)
}

// generate returns policies as CSV.
func generate(policies int, seed uint64) string {
	rng := rand.New(rand.NewPCG(seed, 0))
	var b strings.Builder
	b.WriteString(header + "\n")
	for range policies {
		region := []string{"east", "north", "south", "west", "west"}[rng.IntN(5)]
		vehicle := []string{"car", "car", "car", "van"}[rng.IntN(4)]
		age := math.Floor(18 + 62*math.Pow(rng.Float64(), 1.3))
		years := math.Round(1000*math.Min(1, 0.05+1.4*rng.Float64())) / 1000
		luck := distuv.Gamma{Alpha: trueShape, Beta: trueShape, Src: rng}.Rand()
		claims := distuv.Poisson{Lambda: years * luck * rate(region, vehicle, age), Src: rng}.Rand()
		b.WriteString(csvRow(region, vehicle, age, years, int(claims)))
	}
	return b.String()
}
