// Reports a round by HTTP, and waits for its ratings. It needs Java 17 or newer, and no library:
// `java Report.java`. A real program would read the answers by its library for JSON.
//
// RATER_URL and RATER_TOKEN name the API of `stream-rater serve`, and its token for writing.
import java.io.IOException;
import java.net.URI;
import java.net.URLEncoder;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse;
import java.net.http.HttpResponse.BodyHandlers;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.time.Instant;
import java.util.UUID;

public final class Report {
    private static final String URL =
        System.getenv().getOrDefault("RATER_URL", "http://127.0.0.1:9109");
    // By default it asks for an upgrade to HTTP/2, and the API would not read the body.
    private static final HttpClient CLIENT =
        HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).build();

    private static HttpRequest.Builder request(String path) {
        return HttpRequest.newBuilder(URI.create(URL + path))
            .timeout(Duration.ofSeconds(40))
            .header("Authorization", "Bearer " + System.getenv("RATER_TOKEN"))
            .header("Content-Type", "application/json");
    }

    /** Sends a round until it is stored for good. The same round_id counts once. */
    private static void report(String ladder, String finished)
            throws IOException, InterruptedException {
        String name = URLEncoder.encode(ladder, StandardCharsets.UTF_8).replace("+", "%20");
        HttpRequest request =
            request("/v1/ladders/" + name + "/rounds").POST(BodyPublishers.ofString(finished)).build();
        Instant deadline = Instant.now().plusSeconds(60);
        while (true) {
            long waitSeconds = 1;
            try {
                HttpResponse<String> answer = CLIENT.send(request, BodyHandlers.ofString());
                if (answer.statusCode() == 202) {
                    return;
                }
                boolean again = answer.statusCode() == 503 || answer.statusCode() == 429;
                if (!again || Instant.now().isAfter(deadline)) {
                    throw new IllegalStateException("refused: " + answer.body());
                }
                waitSeconds = answer.headers().firstValueAsLong("Retry-After").orElse(1);
            } catch (IOException error) { // no answer: it may be stored or not
                if (Instant.now().isAfter(deadline)) {
                    throw error;
                }
            }
            Thread.sleep(Duration.ofSeconds(waitSeconds).toMillis());
        }
    }

    public static void main(String[] arguments) throws IOException, InterruptedException {
        String id = UUID.randomUUID().toString();
        report("duel", """
            {"round_id": "%s", "completed_at": "%s",
             "standings": [{"player": "ann", "rank": 1}, {"player": "bob", "rank": 2}]}
            """.formatted(id, Instant.now()));
        String state;
        do {
            HttpRequest request = request("/v1/ladders/duel/rounds/" + id + "?wait=30").build();
            HttpResponse<String> answer = CLIENT.send(request, BodyHandlers.ofString());
            state = answer.body();
            if (answer.statusCode() != 200) {
                throw new IllegalStateException(state);
            }
        } while (state.contains("\"state\":\"pending\""));
        System.out.println(state);
    }
}
