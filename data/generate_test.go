package data

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"time"
)

// The generators below write files with the difficulties of real files, which each comment lists.

func yesNo(rng *rand.Rand, eta float64, yes, no string) string {
	if rng.Float64() < 1/(1+math.Exp(-eta)) {
		return yes
	}
	return no
}

// grouped writes a number with a separator between groups of three digits.
func grouped(v float64, digits int, group, decimal string) string {
	whole, part, _ := strings.Cut(fmt.Sprintf("%.*f", digits, v), ".")
	var b strings.Builder
	for i, c := range whole {
		if i > 0 && (len(whole)-i)%3 == 0 {
			b.WriteString(group)
		}
		b.WriteRune(c)
	}
	if digits > 0 {
		b.WriteString(decimal + part)
	}
	return b.String()
}

// churnFile has semicolons, decimal commas, euros, two date formats in one column, "k.A." for a
// missing age, levels that differ in case, and a postal code.
func churnFile(rows int) string {
	rng := testRand(1)
	var b strings.Builder
	b.WriteString("\ufeffKundennr;Vertragsbeginn;Letzte Anfrage;Tarif;Monatspreis;Umsatz " +
		"gesamt;Alter;Anrufe;PLZ;Newsletter;gekündigt\r\n")
	for i := range rows {
		start := time.Date(2019, 1, 1, 0, 0, 0, 0, time.UTC).AddDate(0, 0, rng.IntN(1800))
		last := start.AddDate(0, 0, 30+rng.IntN(600))
		k := rng.IntN(4)
		if rng.Float64() < 0.004 {
			k = 4
		}
		price, months := []float64{19.9, 29.9, 49.9, 49.9, 9.9}[k]+float64(rng.IntN(10)),
			1+rng.IntN(60)
		age := fmt.Sprint(18 + rng.IntN(65))
		if rng.Float64() < 0.08 {
			age = []string{"", "k.A.", "-"}[rng.IntN(3)]
		}
		asked := last.Format([]string{"2006-01-02", "02.01.2006"}[rng.IntN(2)])
		if rng.Float64() < 0.02 {
			asked = ""
		}
		calls := rng.IntN(8)
		fmt.Fprintf(&b, "K-%06d;%s;%s;%s;%s €;%s €;%s;%d;%05d;%s;%s\r\n", 100000+7*i,
			start.Format("02.01.2006"), asked,
			[]string{"Basis", "Komfort", "Premium", "premium ", "Altvertrag"}[k],
			grouped(price, 2, ".", ","),
			grouped(price*float64(months), 2, ".", ","), age, calls, 1000+rng.IntN(98000),
			[]string{"ja", "nein", ""}[rng.IntN(3)],
			yesNo(rng, -2+0.4*float64(calls)-0.02*float64(months), "ja", "nein"))
	}
	return b.String()
}

// claimsFile has counts with an exposure, identifiers, and dollars with a comma that could be a
// decimal sign or separate thousands.
func claimsFile(rows int) string {
	rng := testRand(2)
	var b strings.Builder
	b.WriteString("policy_id,region,veh_brand,drv_age,veh_value,exposure_days,claims\n")
	for i := range rows {
		days := 1 + rng.IntN(365)
		mean, k := float64(days)/365*0.15, 0
		for p, u := math.Exp(-mean), rng.Float64(); u > p && k < 9; k++ {
			u -= p
			p *= mean / float64(k+1)
		}
		value := `"$` + grouped(math.Exp(9+0.6*rng.NormFloat64()), 0, ",", ".") + `"`
		if rng.Float64() < 0.01 {
			value = "NA"
		}
		fmt.Fprintf(&b, "%d,%s,B%d,%d,%s,%d,%d\n", 4000000+i,
			[]string{"north", "south", "east", "west"}[rng.IntN(4)],
			1+rng.IntN(14), 18+rng.IntN(70), value, days, k)
	}
	return b.String()
}

// clinicalFile has tabs, subjects with two rows, American dates, rare levels, values below a
// detection limit, "." for a missing value, and sites that are numbers.
func clinicalFile(rows int) string {
	rng := testRand(3)
	var b strings.Builder
	b.WriteString("subject\tsite\tvisit\tsex\trace\tcrp_mg_l\tbmi\tsmoker\tresponse\n")
	for i := range rows {
		u, k := rng.Float64(), 0
		for u > []float64{0.7, 0.9, 0.96, 0.99, 0.997, 1}[k] {
			k++
		}
		crp, bmi := fmt.Sprintf("%.1f", math.Exp(1+rng.NormFloat64())),
			fmt.Sprintf("%.1f", 27+5*rng.NormFloat64())
		if rng.Float64() < 0.1 {
			crp = "<0.3"
		}
		if rng.Float64() < 0.05 {
			bmi = "."
		}
		day := time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC).AddDate(0, 0, rng.IntN(300))
		fmt.Fprintf(&b, "S%04d\t%d\t%s\t%s\t%s\t%s\t%s\t%d\t%s\n", i/2, 100+rng.IntN(14),
			day.Format("01/02/2006"),
			[]string{"F", "M", "m", "f"}[rng.IntN(4)],
			[]string{"White", "Black", "Asian", "Other", "Am. Indian", "Pacific"}[k],
			crp, bmi, rng.IntN(2), yesNo(rng, -0.3, "yes", "no"))
	}
	return b.String()
}

// swissFile is written like Excel does in Zürich: Windows-1252, a line with the separator,
// apostrophes between thousands, a separator at the end of lines, line ends within texts, and two
// currencies.
func swissFile(rows int) string {
	rng := testRand(4)
	var b strings.Builder
	b.WriteString("sep=;\r\nGr\xf6sse;Miete;W\xe4hrung;Bemerkung;PLZ;verf\xfcgbar;Punkte;\r\n")
	for i := range rows {
		fmt.Fprintf(&b, "%d m2;%s;%s;\"%s\";0%d;%s;%d;\r\n", 20+rng.IntN(100),
			grouped(900+4000*rng.Float64(), 2, "'", "."),
			[]string{"CHF", "EUR"}[rng.IntN(2)],
			[]string{"sch\xf6n;\r\nhell", "ruhig", "N\xe4he \"\"See\"\""}[rng.IntN(3)],
			801+rng.IntN(4), []string{"3/4/2024", "5/6/2024", "11/12/2024"}[rng.IntN(3)], i%5*i%97)
	}
	return b.String()
}

// eventsFile is JSON with fields that come late or are null, numbers as texts, an escaped letter,
// true and false, and a field that only one outcome has.
func eventsFile(rows int) string {
	rng := testRand(5)
	var b strings.Builder
	for i := range rows {
		paid := yesNo(rng, 0, "true", "false")
		fmt.Fprintf(&b, `{"id": "%08x", "ms": %d, "price": "%.2f", "d\u00e9vice": %q, "paid": %s`,
			uint32(i)*2654435761,
			rng.IntN(100000), 1+100*rng.Float64(), []string{"phone", "tablet", "pc"}[rng.IntN(3)],
			paid)
		if paid == "true" {
			fmt.Fprintf(&b, `, "receipt": %d`, rng.IntN(3))
		}
		if i > rows/2 {
			fmt.Fprintf(&b, `, "score": %v`, []any{0.5, 1.25, "null", 3}[rng.IntN(4)])
		}
		b.WriteString("}\n\n")
	}
	return b.String()
}

// sensorsFile is UTF-16 with bars: times with a zone, the country code of Namibia, numbers with an
// exponent, codes with leading zeros, and an outcome of five whole numbers.
func sensorsFile(rows int) string {
	rng := testRand(6)
	var b strings.Builder
	b.WriteString("\ufefftime|country|code|flow|grade|note\n")
	for i := range rows {
		at := time.Date(2023, 3, 1, 0, 0, 0, 0, time.FixedZone("", 3600)).Add(
			time.Duration(i) * 7 * time.Hour)
		fmt.Fprintf(&b, "%s|%s|%03d|%.3e|%d|%s\n", at.Format(time.RFC3339),
			[]string{"NA", "ZA", "BW"}[rng.IntN(3)], rng.IntN(12),
			math.Exp(3*rng.NormFloat64()), 1+rng.IntN(5),
			"checked at the gate, all well: "+fmt.Sprint(i*i))
	}
	return utf16Text(b.String(), false)
}
