"""Families about money: discounts, shares, interest, exchange, tax, wages."""

from __future__ import annotations

from decimal import ROUND_HALF_UP, Decimal
from random import Random

from tests.benchmarks.flywheel.families.base import Family, money

CENT = Decimal("0.01")


def _cents(value: Decimal) -> float:
    return float(value.quantize(CENT, ROUND_HALF_UP))


def _price(draw: Random, low: int, high: int) -> float:
    return draw.randint(low * 4, high * 4) / 4


def _discount(price: float, pieces: int, discount: int) -> float:
    return _cents(Decimal(str(price)) * pieces * (100 - discount) / 100)


def _split(bill: float, tip: int, people: int) -> float:
    return _cents(Decimal(str(bill)) * (100 + tip) / 100 / people)


def _savings(start: int, rate: int, years: int) -> float:
    amount = Decimal(start)
    for _ in range(years):
        amount += amount * rate / 100
    return _cents(amount)


def _exchange(amount: int, rate: float, fee: float) -> float:
    return _cents((Decimal(amount) - Decimal(str(fee))) * Decimal(str(rate)))


def _gross(net: float, tax: int, shipping: float) -> float:
    return _cents(Decimal(str(net)) + Decimal(str(net)) * tax / 100 + Decimal(str(shipping)))


def _pay(hours: int, wage: float, normal_hours: int) -> float:
    rates = [Decimal(str(wage)) * (Decimal("1.5") if hour >= normal_hours else 1) for hour in range(hours)]
    return _cents(sum(rates, Decimal(0)))


FAMILIES = (
    Family(
        name="discounted-order",
        program=(
            "def solve(price, pieces, discount):\n"
            "    # price of one piece, number of pieces, discount in percent\n"
            "    return round(price * pieces * (100 - discount) / 100 + 1e-9, 2)\n"
        ),
        draw=lambda d: {
            "price": _price(d, 3, 90),
            "pieces": d.randint(3, 48),
            "discount": d.choice((5, 8, 10, 12, 15, 20, 25, 30)),
        },
        truth=_discount,
        wordings=(
            "A keyboard costs ${price}. A company orders {pieces} of them and gets a discount of {discount}%. "
            "How many dollars does the order cost?",
            "The shop takes {discount}% off for bulk buyers. At a list price of ${price}, what do {pieces} chairs "
            "cost?",
            "We want {pieces} lamps. Each has a list price of ${price}, and our contract says {discount}% off. "
            "What will be charged for the order?",
            "Order total, please: unit price ${price}, quantity {pieces}, rebate {discount}%.",
        ),
        show={"price": money},
    ),
    Family(
        name="shared-bill",
        program=(
            "def solve(bill, tip, people):\n"
            "    # restaurant bill, tip in percent, number of people who share\n"
            "    return round(bill * (100 + tip) / 100 / people + 1e-9, 2)\n"
        ),
        draw=lambda d: {
            "bill": _price(d, 60, 400),
            "tip": d.choice((5, 8, 10, 12, 15, 18)),
            "people": d.choice((4, 5, 8, 10, 16, 20)),
        },
        truth=_split,
        wordings=(
            "The restaurant bill is ${bill}. The guests add a tip of {tip}% and {people} people share it equally. "
            "How many dollars does each pay?",
            "{people} friends had dinner for ${bill}. With a {tip}% tip on top, what is each one's share?",
            "Split the dinner: the check says ${bill}, we tip {tip}%, and there are {people} of us. Amount per person?",
            "After lunch, {people} colleagues divide a check of ${bill} evenly, having added {tip}% for the waiter. "
            "What does everyone owe?",
        ),
        show={"bill": money},
    ),
    Family(
        name="savings-with-interest",
        program=(
            "def solve(start, rate, years):\n"
            "    # deposit, yearly interest in percent, number of years, compounded\n"
            "    return round(start * (1 + rate / 100) ** years + 1e-9, 2)\n"
        ),
        draw=lambda d: {"start": 100 * d.randint(5, 90), "rate": d.randint(2, 7), "years": d.randint(8, 15)},
        truth=_savings,
        wordings=(
            "A deposit of ${start} earns {rate}% interest a year, compounded yearly. "
            "How many dollars are on the account after {years} years?",
            "Somebody leaves ${start} in a savings account for {years} years at {rate}% compound interest a year. "
            "What is the balance?",
            "What does a savings account hold after {years} years if ${start} was paid in and the bank adds {rate}% of "
            "interest each year?",
            "Compound growth: initial deposit ${start}, annual interest rate {rate}%, term {years} years. Final "
            "balance?",
        ),
        show={"start": lambda v: f"{v:,}"},
    ),
    Family(
        name="currency-exchange",
        program=(
            "def solve(amount, rate, fee):\n"
            "    # amount to change, rate of exchange, fixed fee taken off first\n"
            "    return round((amount - fee) * rate + 1e-9, 2)\n"
        ),
        draw=lambda d: {
            "amount": 10 * d.randint(12, 95),
            "rate": d.randint(1050, 1390) / 1000,
            "fee": _price(d, 2, 9),
        },
        truth=_exchange,
        wordings=(
            "A traveller changes {amount} euros into dollars at a rate of {rate} dollars a euro. The office first "
            "keeps a fee of {fee} euros. How many dollars are paid out?",
            "The exchange rate is {rate} dollars for a euro. I hand in {amount} euros, of which a fee of {fee} euros "
            "is "
            "deducted. Dollars received?",
            "With a fee of {fee} euros deducted up front, how many dollars do I get for {amount} euros when the "
            "exchange "
            "rate stands at {rate}?",
            "Change {amount} euros to dollars, please. Exchange rate: {rate}; commission: {fee} euros, subtracted "
            "before "
            "conversion.",
        ),
        show={"fee": money},
    ),
    Family(
        name="invoice-with-tax",
        program=(
            "def solve(net, tax, shipping):\n"
            "    # net price of the goods, sales tax in percent, shipping which is not taxed\n"
            "    return round(net + net * tax / 100 + shipping + 1e-9, 2)\n"
        ),
        draw=lambda d: {
            "net": _price(d, 100, 900),
            "tax": d.choice((7, 8, 16, 19, 20, 21)),
            "shipping": _price(d, 4, 30),
        },
        truth=_gross,
        wordings=(
            "An invoice lists goods for ${net} net. Sales tax is {tax}% of that, and shipping of ${shipping} is added "
            "untaxed. What is the total of the invoice?",
            "Add {tax}% tax to goods worth ${net}, then ${shipping} for shipping. What does the invoice come to?",
            "Shipping is ${shipping} (no tax on it). The goods are ${net} before tax, and the tax rate is {tax}%. "
            "What must the invoice say in total?",
            "Total the invoice: goods ${net}, VAT {tax}%, delivery ${shipping} without VAT.",
        ),
        show={"net": money, "shipping": money},
    ),
    Family(
        name="pay-with-overtime",
        program=(
            "def solve(hours, wage, normal_hours):\n"
            "    # hours worked, wage an hour, hours before overtime; overtime is paid one and a half times\n"
            "    overtime = max(0, hours - normal_hours)\n"
            "    return round((hours - overtime) * wage + overtime * wage * 1.5 + 1e-9, 2)\n"
        ),
        draw=lambda d: {"hours": d.randint(42, 60), "wage": _price(d, 14, 45), "normal_hours": d.randint(30, 40)},
        truth=_pay,
        wordings=(
            "A worker was there for {hours} hours this week at ${wage} an hour. Hours beyond {normal_hours} are "
            "overtime "
            "and paid one and a half times. How many dollars is the pay?",
            "At a wage of ${wage} an hour, somebody works {hours} hours. Overtime, at time and a half, begins after "
            "{normal_hours} hours. Weekly pay?",
            "Overtime counts one and a half times and starts after {normal_hours} hours. What is the weekly pay for "
            "{hours} "
            "hours of work at an hourly wage of ${wage}?",
            "Payroll: worked {hours} hours, hourly rate ${wage}, overtime threshold {normal_hours} hours at time and "
            "a half. "
            "Gross pay this week?",
        ),
        show={"wage": money},
    ),
)
