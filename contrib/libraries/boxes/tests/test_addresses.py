"""Names and addresses: every way to write an address, every range that is not the public network."""

from __future__ import annotations

import ipaddress
import socket

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pegboard_boxes.addresses import AllowList, literal, parse, unfit


@pytest.mark.parametrize(
    "text",
    [
        "127.0.0.1", "127.8.8.8", "0.0.0.0", "10.1.2.3", "172.16.0.1", "192.168.1.1", "100.64.0.1", "169.254.169.254",
        "169.254.1.1", "168.63.129.16", "100.100.100.200", "192.0.0.192", "224.0.0.1", "240.0.0.1", "255.255.255.255",
        "198.18.0.1", "203.0.113.5", "::", "::1", "::ffff:8.8.8.8", "::ffff:127.0.0.1", "::8.8.8.8", "64:ff9b::808:808",
        "64:ff9b:1::a00:1", "2002:808:808::1", "2001:0:808:808::1", "fe80::1", "fc00::1", "fd00:ec2::254", "ff02::1",
        "2001:db8::1",
    ],
)  # fmt: skip
def test_what_is_not_the_public_network(text):
    assert unfit(ipaddress.ip_address(text)), text


@pytest.mark.parametrize("text", ["8.8.8.8", "1.1.1.1", "93.184.216.34", "2606:4700:4700::1111", "2a00:1450:4001::1"])
def test_public_addresses(text):
    assert unfit(ipaddress.ip_address(text)) == ""


def test_the_machines_own_address_is_this_machine(monkeypatch):
    class Own:
        def __init__(self, *given):
            pass

        def __enter__(self):
            return self

        def __exit__(self, *error):
            return None

        def connect(self, target):
            self.target = target

        def getsockname(self):
            return (self.target[0], 40000)

    monkeypatch.setattr(socket, "socket", Own)
    assert unfit(ipaddress.ip_address("8.8.4.4")) == "it is this machine"


@pytest.mark.parametrize("text", ["2130706433", "0x7f000001", "0177.0.0.1", "127.1", "0x7f.1", "127.0.0.1"])
def test_every_spelling_of_an_address_is_that_address(text):
    assert literal(text) == ipaddress.ip_address("127.0.0.1")


@pytest.mark.parametrize(
    "text", ["deadbeef", "face.cafe", "example.com", "a.b", "xn--bcher-kva.example", "0x", "1.2.3.4.5"]
)
def test_names_are_no_addresses(text):
    assert literal(text) is None


def test_an_empty_list_allows_nothing():
    hosts = AllowList(())
    for host in ("example.com", "localhost", "127.0.0.1", "8.8.8.8", "::1"):
        assert hosts.judge_name(host, 443)


@pytest.mark.parametrize(
    ("host", "allowed"),
    [
        ("api.example.com", True), ("API.Example.COM", True), ("api.example.com.", True), ("a.b.example.com", True),
        ("example.com", False), ("api.example.com.evil.org", False), ("evilexample.com", False),
        ("example.com@evil.org", False),
        ("api.example.com:443", False), ("api.example.com ", False), ("", False), ("10.0.0.1", False), ("*", False),
        ("api\\.example.com", False), ("api.example.com\0.evil.org", False), ("example.org", True),
    ],
)  # fmt: skip
def test_names_by_pattern(host, allowed):
    assert (AllowList(("*.example.com", "example.org")).judge_name(host, 443) == "") is allowed


def test_a_refused_host_stays_refused_beside_a_wider_allow():
    hosts = AllowList(("*", "10.0.0.0/8"), ("*.evil.org", "10.9.0.0/16"))
    assert hosts.judge_name("example.com", 443) == ""
    assert hosts.judge_name("x.evil.org", 443) == "a rule refuses it"
    assert hosts.judge_name("10.9.1.1", 80) == "a rule refuses it"
    assert hosts.judge_address(ipaddress.ip_address("10.9.1.1"), 80) == "a rule refuses it"
    assert hosts.judge_name("10.1.1.1", 80) == "" == hosts.judge_address(ipaddress.ip_address("10.1.1.1"), 80)


def test_a_star_covers_no_address_and_no_private_one():
    hosts = AllowList(("*",))
    assert hosts.judge_name("8.8.8.8", 443)
    assert hosts.judge_address(ipaddress.ip_address("10.1.1.1"), 443) == "it is private"


def test_an_entry_with_a_port_is_for_that_port():
    hosts = AllowList(("db.example.com:5432", "127.0.0.1:8080", "[::1]:9000"))
    assert hosts.judge_name("db.example.com", 5432) == "" != hosts.judge_name("db.example.com", 22)
    here = ipaddress.ip_address("127.0.0.1")
    assert hosts.judge_address(here, 8080) == "" != hosts.judge_address(here, 22)
    assert hosts.judge_name("::1", 9000) == "" != hosts.judge_name("::1", 9001)


def test_entries_that_cannot_be_read_allow_nothing():
    assert [parse(text) for text in ("", "http://x.org/", "a/b", "x y")] == [None] * 4
    assert parse("EXAMPLE.org").pattern == "example.org"
    assert AllowList(("http://x.org/",)).judge_name("x.org", 80)


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=100, deadline=None)
def test_no_ipv4_address_passes_inside_an_ipv6_one(number):
    address = ipaddress.IPv4Address(number)
    for lead in ("::ffff:", "64:ff9b::", "::"):
        assert unfit(ipaddress.IPv6Address(f"{lead}{address}"))


@given(st.ip_addresses(), st.integers(1, 65535))
@settings(max_examples=100, deadline=None)
def test_a_literal_needs_an_entry_of_its_own(address, port):
    assert AllowList(("*", "*.com")).judge_name(str(address), port)
    assert AllowList((str(address),)).judge_name(str(address), port) == ""
    assert AllowList((str(address),)).judge_address(address, port) == ""
