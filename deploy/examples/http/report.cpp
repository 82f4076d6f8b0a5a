// Reports a round by HTTP, and waits for its ratings, with libcurl:
//     g++ -std=c++17 report.cpp -lcurl -o report    # on Debian after: apt install libcurl4-openssl-dev
// A real program would read the answers by its library for JSON.
//
// RATER_URL and RATER_TOKEN name the API of `stream-rater serve`, and its token for writing.
#include <curl/curl.h>

#include <chrono>
#include <cstdlib>
#include <ctime>
#include <iostream>
#include <random>
#include <string>
#include <thread>

struct Answer {
    long status = 0;  // 0: there was no answer
    curl_off_t retry_after_s = 0;
    std::string body;
};

std::string setting(const char* name, const char* otherwise) {
    const char* found = std::getenv(name);
    return found ? found : otherwise;
}

size_t append(char* data, size_t size, size_t count, void* body) {
    static_cast<std::string*>(body)->append(data, size * count);
    return size * count;
}

// Sends one request: a POST, unless the body is empty.
Answer ask(const std::string& path, const std::string& body = "") {
    Answer answer;
    CURL* curl = curl_easy_init();
    const std::string url = setting("RATER_URL", "http://127.0.0.1:9109") + path;
    const std::string token = "Authorization: Bearer " + setting("RATER_TOKEN", "");
    curl_slist* headers = curl_slist_append(nullptr, token.c_str());
    headers = curl_slist_append(headers, "Content-Type: application/json");
    curl_easy_setopt(curl, CURLOPT_URL, url.c_str());
    curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
    curl_easy_setopt(curl, CURLOPT_TIMEOUT, 40L);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, append);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, &answer.body);
    if (!body.empty()) curl_easy_setopt(curl, CURLOPT_POSTFIELDS, body.c_str());
    if (curl_easy_perform(curl) == CURLE_OK) {
        curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &answer.status);
        curl_easy_getinfo(curl, CURLINFO_RETRY_AFTER, &answer.retry_after_s);
    }
    curl_slist_free_all(headers);
    curl_easy_cleanup(curl);
    return answer;
}

// Sends a round until it is stored for good. The same round_id counts once.
bool report(const std::string& ladder, const std::string& finished) {
    using clock = std::chrono::steady_clock;
    const auto deadline = clock::now() + std::chrono::seconds(60);
    while (true) {
        const Answer answer = ask("/v1/ladders/" + ladder + "/rounds", finished);
        if (answer.status == 202) return true;
        const bool again = answer.status == 0 || answer.status == 503 || answer.status == 429;
        if (!again || clock::now() > deadline) {
            std::cerr << "refused: " << answer.status << ' ' << answer.body << '\n';
            return false;
        }
        const auto wait_s = answer.retry_after_s > 0 ? answer.retry_after_s : 1;
        std::this_thread::sleep_for(std::chrono::seconds(wait_s));
    }
}

int main() {
    curl_global_init(CURL_GLOBAL_DEFAULT);
    std::random_device random;
    const std::string id = "cpp-" + std::to_string(random()) + "-" + std::to_string(random());
    char now[32];
    const std::time_t seconds = std::time(nullptr);
    std::strftime(now, sizeof now, "%Y-%m-%dT%H:%M:%SZ", std::gmtime(&seconds));
    const std::string finished = R"({"round_id": ")" + id + R"(", "completed_at": ")" + now +
        R"(", "standings": [{"player": "ann", "rank": 1}, {"player": "bob", "rank": 2}]})";
    if (!report("duel", finished)) return 1;
    Answer state;
    do {
        state = ask("/v1/ladders/duel/rounds/" + id + "?wait=30");
        if (state.status != 200) {
            std::cerr << state.status << ' ' << state.body << '\n';
            return 1;
        }
    } while (state.body.find(R"("state":"pending")") != std::string::npos);
    std::cout << state.body << '\n';
    curl_global_cleanup();
}
